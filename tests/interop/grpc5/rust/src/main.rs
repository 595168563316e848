//! A hand around RocketMQ's own Rust client (the crate `rocketmq`); the deeds are those of the other hands in this folder,
//! as far as the client has them: it knows no push consumer, no recall, and cannot change a message's invisible time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::FromRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Outcome = Result<Value, String>;

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
}

struct Hand {
    endpoints: String,
    tls: bool,
    producers: tokio::sync::Mutex<HashMap<(String, bool), Arc<Producer>>>,
    consumers: Mutex<HashMap<String, Arc<Consumer>>>,
    messages: Mutex<HashMap<String, Arc<MessageView>>>,
    checked: Arc<Mutex<Vec<String>>>,
}

fn text<'a>(values: &'a Value, name: &str) -> &'a str {
    values[name].as_str().unwrap_or("")
}

fn said<T: std::fmt::Display>(error: T) -> String {
    error.to_string()
}

fn shown(message: &MessageView) -> Value {
    let mut keys = message.keys().to_vec();
    keys.sort();
    json!({
        "id": message.message_id(),
        "topic": message.topic(),
        "body": String::from_utf8_lossy(message.body()),
        "tag": message.tag(),
        "keys": keys,
        "properties": message.properties(),
        "group": message.message_group(),
        "attempt": message.delivery_attempt(),
        "at": SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64,
    })
}

impl Hand {
    fn options(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.endpoints.clone());
        option.set_enable_tls(self.tls);
        option.set_timeout(Duration::from_secs(10));
        if let (Ok(key), Ok(secret)) = (std::env::var("HAND_ACCESS_KEY"), std::env::var("HAND_SECRET_KEY")) {
            option.set_access_key(key);
            option.set_secret_key(secret);
        }
        option
    }

    async fn producer(&self, topic: &str, is_checked: bool) -> Result<Arc<Producer>, String> {
        let mut producers = self.producers.lock().await;
        if let Some(found) = producers.get(&(topic.to_string(), is_checked)) {
            return Ok(found.clone());
        }
        let mut option = ProducerOption::default();
        option.set_topics(vec![topic]);
        let mut producer = if is_checked {
            let checked = self.checked.clone();
            let checker = move |_: String, message: MessageView| {
                checked.lock().unwrap().push(String::from_utf8_lossy(message.body()).to_string());
                match message.properties().get("outcome").map(String::as_str) {
                    Some("commit") => TransactionResolution::COMMIT,
                    Some("rollback") => TransactionResolution::ROLLBACK,
                    _ => TransactionResolution::UNKNOWN,
                }
            };
            Producer::new_transaction_producer(option, self.options(), Box::new(checker)).map_err(said)?
        } else {
            Producer::new(option, self.options()).map_err(said)?
        };
        producer.start().await.map_err(said)?;
        let producer = Arc::new(producer);
        producers.insert((topic.to_string(), is_checked), producer.clone());
        Ok(producer)
    }

    fn message(&self, values: &Value, body: &str, is_transaction: bool) -> MessageBuilder {
        let mut builder = MessageBuilder::builder()
            .set_topic(text(values, "topic"))
            .set_body(body.as_bytes().to_vec());
        if !text(values, "tag").is_empty() {
            builder = builder.set_tag(text(values, "tag"));
        }
        if let Some(keys) = values["keys"].as_array() {
            builder = builder.set_keys(keys.iter().map(|key| key.as_str().unwrap_or("").to_string()).collect());
        }
        if let Some(properties) = values["properties"].as_object() {
            let properties: HashMap<String, String> = properties
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or("").to_string()))
                .collect();
            builder = builder.set_properties(properties);
        }
        if !text(values, "message_group").is_empty() {
            builder = builder.set_message_group(text(values, "message_group"));
        }
        if let Some(delay_ms) = values["delay_ms"].as_u64() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            builder = builder.set_delivery_timestamp((now + Duration::from_millis(delay_ms)).as_secs() as i64);
        }
        if is_transaction {
            builder = builder.enable_transaction();
        }
        builder
    }

    async fn send_body(&self, values: &Value, body: &str) -> Result<String, String> {
        let producer = self.producer(text(values, "topic"), false).await?;
        let message = self.message(values, body, false).build().map_err(said)?;
        Ok(producer.send(message).await.map_err(said)?.message_id().to_string())
    }

    async fn send_many(&self, values: &Value) -> Outcome {
        let mut ids = Vec::new();
        for body in values["bodies"].as_array().unwrap_or(&Vec::new()) {
            ids.push(self.send_body(values, body.as_str().unwrap_or("")).await?);
        }
        Ok(json!(ids))
    }

    async fn transaction(&self, values: &Value) -> Outcome {
        let producer = self.producer(text(values, "topic"), true).await?;
        let message = self.message(values, text(values, "body"), true).build().map_err(said)?;
        let transaction = producer.send_transaction_message(message).await.map_err(said)?;
        let id = transaction.message_id().to_string();
        match text(values, "end") {
            "commit" => transaction.commit().await.map_err(said)?,
            "rollback" => transaction.rollback().await.map_err(said)?,
            _ => (),
        }
        Ok(json!({ "id": id }))
    }

    async fn simple(&self, values: &Value) -> Outcome {
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(text(values, "group"));
        option.set_topics(vec![text(values, "topic")]);
        let mut client_option = self.options();
        // It is also the deadline of the call, and a proxy does not take less than five seconds for a poll.
        let await_ms = values["await_ms"].as_u64().unwrap_or(5000);
        client_option.set_long_polling_timeout(Duration::from_millis(await_ms.max(10_000)));
        let mut client = SimpleConsumer::new(option, client_option).map_err(said)?;
        client.start().await.map_err(said)?;
        let filter = if text(values, "sql").is_empty() {
            let tags = text(values, "tags");
            FilterExpression::new(FilterType::Tag, if tags.is_empty() { "*" } else { tags })
        } else {
            FilterExpression::new(FilterType::Sql, text(values, "sql"))
        };
        let made = Consumer { client, topic: text(values, "topic").to_string(), filter };
        self.consumers.lock().unwrap().insert(text(values, "name").to_string(), Arc::new(made));
        Ok(Value::Null)
    }

    fn consumer(&self, values: &Value) -> Result<Arc<Consumer>, String> {
        let consumers = self.consumers.lock().unwrap();
        consumers.get(text(values, "name")).cloned().ok_or("no such consumer".to_string())
    }

    async fn receive(&self, values: &Value) -> Outcome {
        let consumer = self.consumer(values)?;
        let ends = Instant::now() + Duration::from_millis(values["wait_ms"].as_u64().unwrap_or(0));
        let wanted = values["number"].as_u64().unwrap_or(1) as usize;
        let most = values["max"].as_i64().unwrap_or(16) as i32;
        let invisible = Duration::from_millis(values["invisible_ms"].as_u64().unwrap_or(15_000));
        let mut found = Vec::new();
        while found.len() < wanted && Instant::now() < ends {
            let messages = consumer
                .client
                .receive_with(&consumer.topic, &consumer.filter, most, invisible)
                .await
                .map_err(said)?;
            for message in messages {
                found.push(shown(&message));
                let id = message.message_id().to_string();
                self.messages.lock().unwrap().insert(id, Arc::new(message));
            }
        }
        Ok(json!(found))
    }

    async fn ack(&self, values: &Value) -> Outcome {
        let consumer = self.consumer(values)?;
        for id in values["ids"].as_array().unwrap_or(&Vec::new()) {
            let message = self.messages.lock().unwrap().get(id.as_str().unwrap_or("")).cloned();
            let message = message.ok_or("no such message".to_string())?;
            consumer.client.ack(message.as_ref()).await.map_err(said)?;
        }
        Ok(Value::Null)
    }

    async fn checked(&self, values: &Value) -> Outcome {
        let ends = Instant::now() + Duration::from_millis(values["wait_ms"].as_u64().unwrap_or(0));
        let wanted = values["number"].as_u64().unwrap_or(1) as usize;
        while self.checked.lock().unwrap().len() < wanted && Instant::now() < ends {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(json!(*self.checked.lock().unwrap()))
    }

    async fn deed(&self, values: &Value) -> Outcome {
        match text(values, "do") {
            "send" => Ok(json!({ "id": self.send_body(values, text(values, "body")).await?, "recall": null })),
            "send_many" => self.send_many(values).await,
            "transaction" => self.transaction(values).await,
            "checked" => self.checked(values).await,
            "simple" => self.simple(values).await,
            "receive" => self.receive(values).await,
            "ack" => self.ack(values).await,
            other => Err(format!("this client has no {other}")),
        }
    }
}

#[tokio::main]
async fn main() {
    // The client logs to standard output, which is for answers here.
    let mut out = unsafe {
        let answers = libc::dup(1);
        libc::dup2(2, 1);
        File::from_raw_fd(answers)
    };
    let arguments: Vec<String> = std::env::args().collect();
    let hand = Arc::new(Hand {
        endpoints: arguments[1].clone(),
        tls: arguments.get(2).map(String::as_str) == Some("tls"),
        producers: Default::default(),
        consumers: Default::default(),
        messages: Default::default(),
        checked: Default::default(),
    });
    let (answers, mut outcomes) = tokio::sync::mpsc::unbounded_channel::<Value>();
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(values) = line.map_err(said).and_then(|line| serde_json::from_str::<Value>(&line).map_err(said)) else {
                break;
            };
            let (hand, answers) = (hand.clone(), answers.clone());
            runtime.spawn(async move {
                let mut answer = json!({ "id": values["id"] });
                match hand.deed(&values).await {
                    Ok(result) => answer["result"] = result,
                    Err(message) => answer["error"] = json!({ "kind": "ClientError", "code": null, "message": message }),
                }
                let _ = answers.send(answer);
            });
        }
        std::process::exit(0);
    });
    while let Some(answer) = outcomes.recv().await {
        writeln!(out, "{answer}").and_then(|_| out.flush()).expect("the answer is read");
    }
}
