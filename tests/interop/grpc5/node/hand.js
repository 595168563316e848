// A hand around RocketMQ's Node client of the 5.x line; the deeds are those of the other hands in this folder.
const readline = require('node:readline');
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult, FilterExpression } = require('rocketmq-client-nodejs');
const proto = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const endpoints = process.argv[2];
const producers = new Map(), consumers = new Map(), consumed = new Map(), messages = new Map(), checked = [];
for (const name of ['log', 'info', 'warn', 'debug']) console[name] = (...words) => console.error(...words);
const silent = { info() {}, warn() {}, error: console.error, debug() {} };
const options = {
  endpoints, namespace: '', logger: silent, requestTimeout: 10000, sslEnabled: process.argv[3] === 'tls',
};
if (process.env.HAND_ACCESS_KEY) {
  options.sessionCredentials = {
    accessKey: process.env.HAND_ACCESS_KEY, accessSecret: process.env.HAND_SECRET_KEY, securityToken: '',
  };
}

function expression(c) {
  if (c.sql) return new FilterExpression(c.sql, proto.FilterType.SQL);
  return new FilterExpression(c.tags || '*');
}

async function producer(topic) {
  if (!producers.has(topic)) {
    const made = new Producer({ ...options, topic, checker: {
      async check(view) {
        checked.push(view.body.toString());
        const outcome = view.properties.get('outcome');
        const R = proto.TransactionResolution;
        return outcome === 'commit' ? R.COMMIT : outcome === 'rollback' ? R.ROLLBACK : R.TRANSACTION_RESOLUTION_UNSPECIFIED;
      },
    } });
    producers.set(topic, made.startup().then(() => made));
  }
  return producers.get(topic);
}

function message(c, body) {
  const made = { topic: c.topic, body: Buffer.from(body) };
  if (c.tag) made.tag = c.tag;
  if (c.keys) made.keys = c.keys;
  if (c.message_group) made.messageGroup = c.message_group;
  if (c.delay_ms) made.deliveryTimestamp = new Date(Date.now() + c.delay_ms);
  if (c.properties) made.properties = new Map(Object.entries(c.properties));
  return made;
}

function shown(view) {
  return {
    id: view.messageId, topic: view.topic, body: view.body.toString(), tag: view.tag ?? null, keys: [...view.keys].sort(),
    properties: Object.fromEntries(view.properties), group: view.messageGroup ?? null, attempt: view.deliveryAttempt,
    at: Date.now(),
  };
}

async function wait(done, ms) {
  const end = Date.now() + ms;
  while (!done() && Date.now() < end) await new Promise(resolve => setTimeout(resolve, 10));
}

const deeds = {
  async send(c) {
    const receipt = await (await producer(c.topic)).send(message(c, c.body));
    return { id: receipt.messageId, recall: receipt.recallHandle };
  },
  async send_many(c) {
    const made = await producer(c.topic), ids = [];
    for (const body of c.bodies) ids.push((await made.send(message(c, body))).messageId);
    return ids;
  },
  async transaction(c) {
    const made = await producer(c.topic);
    const transaction = made.beginTransaction();
    const receipt = await made.send(message(c, c.body), transaction);
    if (c.end === 'commit') await transaction.commit();
    if (c.end === 'rollback') await transaction.rollback();
    return { id: receipt.messageId };
  },
  async checked(c) {
    await wait(() => checked.length >= c.number, c.wait_ms);
    return checked;
  },
  async recall(c) {
    return { id: (await (await producer(c.topic)).recallMessage(c.topic, c.handle)).messageId };
  },
  async simple(c) {
    const made = new SimpleConsumer({
      ...options, consumerGroup: c.group, awaitDuration: c.await_ms ?? 5000,
      subscriptions: new Map().set(c.topic, expression(c)),
    });
    await made.startup();
    consumers.set(c.name, made);
    return null;
  },
  async receive(c) {
    const found = [], end = Date.now() + c.wait_ms;
    while (found.length < c.number && Date.now() < end) {
      for (const view of await consumers.get(c.name).receive(c.max ?? 16, c.invisible_ms ?? 15000)) {
        messages.set(view.messageId, view);
        found.push(shown(view));
      }
    }
    return found;
  },
  async ack(c) {
    for (const id of c.ids) await consumers.get(c.name).ack(messages.get(id));
    return null;
  },
  async change(c) {
    await consumers.get(c.name).changeInvisibleDuration(messages.get(c.id_of), c.invisible_ms);
    return null;
  },
  async push(c) {
    const failures = new Map(Object.entries(c.failures ?? {}));
    consumed.set(c.name, []);
    const made = new PushConsumer({
      ...options, consumerGroup: c.group, subscriptions: new Map().set(c.topic, expression(c)),
      messageListener: {
        async consume(view) {
          await wait(() => false, c.work_ms ?? 0);
          consumed.get(c.name).push(shown(view));
          const body = view.body.toString();
          if ((failures.get(body) ?? 0) > 0) {
            failures.set(body, failures.get(body) - 1);
            return ConsumeResult.FAILURE;
          }
          return ConsumeResult.SUCCESS;
        },
      },
    });
    await made.startup();
    consumers.set(c.name, made);
    return null;
  },
  async pushed(c) {
    await wait(() => consumed.get(c.name).length >= c.number, c.wait_ms);
    return consumed.get(c.name);
  },
  async close(c) {
    await consumers.get(c.name).shutdown();
    consumers.delete(c.name);
    return null;
  },
};

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const c = JSON.parse(line), answer = { id: c.id };
  try {
    answer.result = await deeds[c.do](c);
  } catch (problem) {
    console.error(problem);
    answer.error = { kind: problem.constructor.name, code: problem.code ?? null, message: String(problem.message) };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}).on('close', () => process.exit(0));
