//! One behaviour, each engine. The crate under test says what an engine is: where the macro is used there is an `Engine`
//! with `sqlite()`, `postgres()`, which is none where the run has no server, and `remove()`.

/// Makes of each behaviour a module with a test for each engine.
#[macro_export]
macro_rules! on_both {
    ($($behaviour:ident),+ $(,)?) => { $(
        mod $behaviour {
            use super::Engine;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$behaviour(&Engine::sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                let Some(engine) = Engine::postgres().await else { return };
                super::$behaviour(&engine).await;
                engine.remove().await;
            }
        }
    )+ };
}
