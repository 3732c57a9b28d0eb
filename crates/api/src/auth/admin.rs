//! The token of the first start: in a file that only the owner of the data folder can read, where the CLI finds it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mutirao_core::auth::{Role, TokenSpec};

use super::Auth;
use crate::error::ApiError;

pub const FILE_NAME: &str = "admin.token";
const FILE_BYTES_MAX: u64 = 1_000;

pub async fn ensure(auth: &Auth, data_dir: &Path) -> Result<PathBuf, ApiError> {
    let path = data_dir.join(FILE_NAME);
    let unusable = |source| ApiError::AdminToken { path: path.clone(), source };
    let known = blocking(&path, read).await.map_err(unusable)?;
    if let Some(text) = known {
        match auth.by_token(&text).await {
            Ok(principal) if principal.role == Role::Admin => return Ok(path),
            Ok(_) => tracing::warn!(path = %path.display(), "the token in the file is no admin's; writing a new one"),
            // A store that does not answer says nothing about the token.
            Err(problem) if problem.status != 401 => return Err(ApiError::Refused(problem)),
            Err(problem) => tracing::warn!(path = %path.display(), why = %problem, "writing a new admin token"),
        }
    }
    let spec = TokenSpec { name: "admin".into(), role: Role::Admin, expires_in: None };
    let created = auth.create_token(&spec, "first-start").await.map_err(ApiError::Refused)?;
    blocking(&path, move |path| write(path, &created.secret)).await.map_err(unusable)?;
    Ok(path)
}

async fn blocking<T: Send + 'static>(
    path: &Path,
    f: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || f(&path)).await.map_err(io::Error::other)?
}

/// What the file holds; none when there is no file, or not one of ours.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
        return Ok(None);
    }
    if meta.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others could read the admin token; its mode is now 0600");
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    let text = io::read_to_string(file).unwrap_or_default();
    Ok(Some(text.trim().to_owned()))
}

/// All of it or nothing: written beside, made durable, then renamed over.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension(format!("token.{}.new", std::process::id()));
    // Left by a process of the same number that was killed here.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&beside, path)) {
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
