'use strict';
// A hand that moves the Node client of the remoting protocol as it is told: see oracle/hand.py for the deeds.
const readline = require('readline');
const httpclient = require('urllib'); // the client insists on one, though only a cloud address needs it
const { Consumer, Producer, Message } = require('ali-ons');

const [ , , namesrv ] = process.argv;
const quiet = { info() {}, debug() {}, warn() {}, error: (...words) => console.error(...words) };
const producers = new Map();
const listeners = new Map();
let instances = 0;

const options = () => ({
  httpclient,
  nameSrv: namesrv,
  clientIP: '127.0.0.1',
  instanceName: `node${process.pid}-${++instances}`,
  pollNameServerInteval: 1000,
  rebalanceInterval: 2000,
  persistConsumerOffsetInterval: 1000,
  logger: quiet,
});

function outgoing(topic, given) {
  const message = new Message(topic, given.tag || '', given.body);
  if (given.key) message.keys = given.key.split(' ');
  if (given.delay) message.delayTimeLevel = given.delay;
  Object.assign(message.properties, given.props || {});
  return message;
}

const record = message => ({
  topic: message.topic,
  key: message.keys,
  tag: message.tags,
  body: message.body.toString(),
  queue: message.queueId,
  offset: Number(message.queueOffset),
  msgId: message.msgId, // this client knows the offset id only
  offsetMsgId: message.msgId,
  times: message.reconsumeTimes,
  born: Number(message.bornTimestamp),
  stored: Number(message.storeTimestamp),
  at: Date.now(),
  props: { ...message.properties },
});

const deeds = {
  async producer(command) {
    const producer = new Producer({ ...options(), producerGroup: command.group });
    producer.on('error', problem => console.error(problem));
    await producer.ready();
    producers.set(command.name, producer);
    return producer.clientId;
  },
  async send(command) {
    const producer = producers.get(command.producer);
    const receipts = [];
    for (const given of command.messages) {
      try {
        const result = await producer.send(outgoing(command.topic, given));
        receipts.push({
          status: result.sendStatus,
          msgId: result.msgId,
          offsetMsgId: result.offsetMsgId || result.msgId,
          broker: result.messageQueue.brokerName,
          queue: Number(result.messageQueue.queueId),
          offset: Number(result.queueOffset),
        });
      } catch (problem) {
        receipts.push({ kind: problem.name, message: problem.message, code: problem.code });
      }
    }
    return receipts;
  },
  async listen(command) {
    const consumer = new Consumer({
      ...options(),
      consumerGroup: command.group,
      isBroadcast: Boolean(command.broadcasting),
      consumeFromWhere: `CONSUME_FROM_${command.consumeFrom || 'FIRST_OFFSET'}`,
    });
    const listener = { consumer, seen: [], failed: {} };
    consumer.on('error', problem => console.error(problem));
    consumer.subscribe(command.topic, command.tags || '*', async message => {
      listener.seen.push(record(message));
      const wanted = (command.fail || {})[message.keys] || 0;
      if (wanted) {
        listener.failed[message.keys] = (listener.failed[message.keys] || 0) + 1;
        if (wanted < 0 || listener.failed[message.keys] <= wanted) return Consumer.ACTION_RETRY;
      }
      return undefined;
    });
    await consumer.ready();
    listeners.set(command.name, listener);
    return consumer.clientId;
  },
  async seen(command) {
    const listener = listeners.get(command.name);
    const end = Date.now() + (command.timeout || 30000);
    while (listener.seen.length < (command.atLeast || 0) && Date.now() < end) {
      await new Promise(resolve => setTimeout(resolve, 10));
    }
    return listener.seen.slice(command.from || 0);
  },
  async 'stop-listening'(command) {
    const listener = listeners.get(command.name);
    listeners.delete(command.name);
    await listener.consumer.close();
    return listener.seen;
  },
  async 'stop-producer'(command) {
    const producer = producers.get(command.name);
    producers.delete(command.name);
    await producer.close();
    return true;
  },
};

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const command = JSON.parse(line);
  let answer;
  try {
    answer = { id: command.id, result: await deeds[command.do](command) };
  } catch (problem) {
    answer = { id: command.id, error: { kind: problem.name, message: problem.message } };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}).on('close', () => process.exit(0));
process.on('unhandledRejection', problem => console.error(problem));
