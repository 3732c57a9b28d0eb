//! A corner of a shared PostgreSQL for one test: a schema of its own, named at random and reached by `search_path`.

use mutirao_core::SessionId;
use tokio_postgres::NoTls;

/// A schema that nobody else uses.
pub struct Schema {
    server: String,
    name: String,
}

impl Schema {
    /// In the database at this URL, which has no query part.
    pub async fn in_database(url: &str) -> Schema {
        let name = format!("test_{}", SessionId::random());
        say(url, &format!("CREATE SCHEMA {name}")).await;
        Schema { server: url.into(), name }
    }

    /// Where this schema is all there is.
    pub fn url(&self) -> String {
        format!("{}?options=-csearch_path%3D{}", self.server, self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// With everything in it. One that a failed test leaves behind goes with its server.
    pub async fn remove(self) {
        say(&self.server, &format!("DROP SCHEMA {} CASCADE", self.name)).await;
    }
}

/// Runs SQL on a connection of its own.
pub async fn say(url: &str, sql: &str) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}
