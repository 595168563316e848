package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Producers: every way to send, transactions, requests.
var (
	producers    = map[string]rocketmq.Producer{}
	transactions = map[string]*fates{}
)

// A message that names its queue or its key goes there; the others take turns.
type chosenQueue struct {
	turns producer.QueueSelector
}

func (c *chosenQueue) Select(m *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	wanted := -1
	if m.Queue != nil {
		wanted = m.Queue.QueueId
	} else if key, err := strconv.Atoi(m.GetShardingKey()); err == nil {
		wanted = key % len(queues)
	}
	for _, queue := range queues {
		if queue.QueueId == wanted {
			return queue
		}
	}
	return c.turns.Select(m, queues, last)
}

// The property "fate" says how the local transaction ends, "check" what a later check finds.
type fates struct {
	rocketmq.TransactionProducer
	checked []string
}

func state(name string) primitive.LocalTransactionState {
	switch name {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (f *fates) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return state(m.GetProperty("fate"))
}

func (f *fates) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	lock.Lock()
	defer lock.Unlock()
	f.checked = append(f.checked, strings.TrimSpace(m.GetKeys()))
	return state(m.GetProperty("check"))
}

func startProducer(c command) (any, error) {
	name := instance()
	if c.Timeout == 0 {
		c.Timeout = 10000
	}
	options := []producer.Option{producer.WithNameServer(primitive.NamesrvAddr{namesrv}), producer.WithGroupName(c.Group),
		producer.WithInstanceName(name), producer.WithRetry(2), producer.WithSendMsgTimeout(time.Duration(c.Timeout) * time.Millisecond),
		producer.WithQueueSelector(&chosenQueue{producer.NewRoundRobinQueueSelector()})}
	if key := os.Getenv("HAND_ACCESS_KEY"); key != "" {
		options = append(options, producer.WithCredentials(primitive.Credentials{AccessKey: key, SecretKey: os.Getenv("HAND_SECRET_KEY")}))
	}
	if c.Trace {
		options = append(options, producer.WithTrace(&primitive.TraceConfig{GroupName: c.Group, Access: primitive.Local, NamesrvAddrs: []string{namesrv}}))
	}
	var start func() error
	mine := &fates{}
	var plain rocketmq.Producer
	var err error
	if c.Transactional {
		if mine.TransactionProducer, err = rocketmq.NewTransactionProducer(mine, options...); err == nil {
			start = mine.Start
		}
	} else if plain, err = rocketmq.NewProducer(options...); err == nil {
		start = plain.Start
	}
	if err != nil {
		return nil, err
	}
	if err = start(); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	if c.Transactional {
		transactions[c.Name] = mine
	} else {
		producers[c.Name] = plain
	}
	return name, nil
}

func stopProducer(c command) (any, error) {
	lock.Lock()
	plain, mine := producers[c.Name], transactions[c.Name]
	delete(producers, c.Name)
	delete(transactions, c.Name)
	lock.Unlock()
	switch {
	case plain != nil:
		return true, plain.Shutdown()
	case mine != nil:
		return true, mine.Shutdown()
	}
	return nil, errors.New("no producer " + c.Name)
}

func producerOf(name string) (rocketmq.Producer, error) {
	lock.Lock()
	defer lock.Unlock()
	if found := producers[name]; found != nil {
		return found, nil
	}
	return nil, errors.New("no producer " + name)
}

func transactionsOf(name string) (*fates, error) {
	lock.Lock()
	defer lock.Unlock()
	if found := transactions[name]; found != nil {
		return found, nil
	}
	return nil, errors.New("no transactional producer " + name)
}

func outgoing(topic string, m message) *primitive.Message {
	out := primitive.NewMessage(topic, []byte(m.Body))
	if m.Tag != "" {
		out.WithTag(m.Tag)
	}
	if m.Key != "" {
		out.WithKeys(strings.Fields(m.Key))
	}
	if m.Delay > 0 {
		out.WithDelayTimeLevel(m.Delay)
	}
	if m.Queue != nil {
		out.Queue = &primitive.MessageQueue{Topic: topic, QueueId: *m.Queue}
	}
	for name, value := range m.Props {
		out.WithProperty(name, value)
	}
	return out
}

func receipt(result *primitive.SendResult, err error) map[string]any {
	if err != nil {
		return map[string]any{"kind": "error", "message": err.Error()}
	}
	said := map[string]any{"msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID, "offset": result.QueueOffset}
	if result.Status == primitive.SendOK {
		said["status"] = "SEND_OK"
	} else {
		said["status"] = fmt.Sprint(result.Status)
	}
	if result.MessageQueue != nil {
		said["queue"], said["broker"] = result.MessageQueue.QueueId, result.MessageQueue.BrokerName
	}
	return said
}

func send(c command) (any, error) {
	using, err := producerOf(c.Producer)
	if err != nil {
		return nil, err
	}
	var all []*primitive.Message
	for _, m := range c.Messages {
		all = append(all, outgoing(c.Topic, m))
	}
	if c.How == "batch" {
		result, err := using.SendSync(context.Background(), all...)
		return receipt(result, err), err
	}
	receipts := make([]map[string]any, len(all))
	var left sync.WaitGroup
	for i, one := range all {
		switch c.How {
		case "oneway":
			if err := using.SendOneWay(context.Background(), one); err != nil {
				return nil, err
			}
		case "async":
			place := i
			left.Add(1)
			err := using.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
				receipts[place] = receipt(result, err)
				left.Done()
			}, one)
			if err != nil {
				return nil, err
			}
		default:
			result, err := using.SendSync(context.Background(), one)
			receipts[i] = receipt(result, err)
		}
	}
	left.Wait()
	return receipts, nil
}

// Sends "kKEY:NUMBER" for each key up to `count` numbers, each key to one queue and in order; a failed send is tried again until it succeeds.
func flood(c command) (any, error) {
	using, err := producerOf(c.Producer)
	if err != nil {
		return nil, err
	}
	var sent, failures int64
	var left sync.WaitGroup
	for thread := 0; thread < c.Threads; thread++ {
		left.Add(1)
		go func(first int) {
			defer left.Done()
			for number := 0; number < c.Count; number++ {
				for key := first; key < c.Keys; key += c.Threads {
					out := outgoing(c.Topic, message{Key: fmt.Sprintf("k%d", key), Tag: "T", Body: fmt.Sprintf("k%d:%d", key, number)})
					out.WithShardingKey(strconv.Itoa(key))
					for {
						result, err := using.SendSync(context.Background(), out)
						if err == nil && result.Status == primitive.SendOK {
							break
						}
						atomic.AddInt64(&failures, 1)
						time.Sleep(50 * time.Millisecond)
					}
					atomic.AddInt64(&sent, 1)
				}
			}
		}(thread)
	}
	left.Wait()
	return map[string]any{"sent": sent, "failures": failures}, nil
}

func transact(c command) (any, error) {
	using, err := transactionsOf(c.Producer)
	if err != nil {
		return nil, err
	}
	receipts := []map[string]any{}
	for _, m := range c.Messages {
		result, err := using.SendMessageInTransaction(context.Background(), outgoing(c.Topic, m))
		if err != nil {
			receipts = append(receipts, receipt(nil, err))
		} else {
			receipts = append(receipts, receipt(result.SendResult, nil))
		}
	}
	return receipts, nil
}

func checked(c command) (any, error) {
	using, err := transactionsOf(c.Producer)
	if err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	return append([]string{}, using.checked...), nil
}

func request(c command) (any, error) {
	using, err := producerOf(c.Producer)
	if err != nil {
		return nil, err
	}
	answer, err := using.Request(context.Background(), time.Duration(c.Timeout)*time.Millisecond, outgoing(c.Topic, message{Key: c.Key, Body: c.Body}))
	if err != nil {
		return nil, err
	}
	return string(answer.Body), nil
}
