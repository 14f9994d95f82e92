// messages.js NAME_SERVER: a producer and consumers in JavaScript, with the commands of java/Messages.java.
'use strict';

const readline = require('readline');
const { Consumer, Producer, Message } = require('ali-ons');

const nameSrv = process.argv[2];
// Without keys, the client signs nothing. With a name server, it fetches no list of addresses.
const common = { nameSrv, httpclient: { request() { throw new Error('no network'); } }, onsAddr: '' };
const received = new Map();
let producer;

async function execute([command, ...words]) {
  switch (command) {
    case 'send': {
      const [topic, from, to] = words;
      if (!producer) {
        producer = new Producer({ ...common, producerGroup: 'node-producers' });
        producer.on('error', error => console.error(error));
        await producer.ready();
      }
      for (let i = Number(from); i < Number(to); i++) {
        const result = await producer.send(new Message(topic, 'tag', `${topic}/${i}`));
        if (result.sendStatus !== 'SEND_OK') return `failed ${JSON.stringify(result)}`;
      }
      return `sent ${to - from} failures 0`;
    }
    case 'subscribe': {
      const [group, topic] = words;
      const bodies = new Set();
      received.set(group, bodies);
      const consumer = new Consumer({ ...common, consumerGroup: group });
      consumer.on('error', error => console.error(error));
      consumer.subscribe(topic, '*', async message => { bodies.add(message.body.toString()); });
      return 'subscribed';
    }
    case 'await': {
      const [group, count] = words;
      const bodies = received.get(group);
      for (const end = Date.now() + 120000; bodies.size < Number(count) && Date.now() < end;) {
        await new Promise(resolve => setTimeout(resolve, 20));
      }
      return `got ${bodies.size} messages`;
    }
    default:
      return `unknown ${command}`;
  }
}

async function main() {
  console.log('done');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = await execute(line.split(' '));
    } catch (error) {
      answer = `failed ${String(error).replace(/\n/g, ' ')}`;
    }
    console.log(`done ${answer}`);
  }
  process.exit(0);
}

main();
