// A hand that moves the Go client as it is told: see oracle/hand.py for the deeds.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type message struct {
	Key   string            `json:"key"`
	Tag   string            `json:"tag"`
	Body  string            `json:"body"`
	Props map[string]string `json:"props"`
	Delay int               `json:"delay"`
}

type command struct {
	ID           int64     `json:"id"`
	Do           string    `json:"do"`
	Name         string    `json:"name"`
	Group        string    `json:"group"`
	Topic        string    `json:"topic"`
	Producer     string    `json:"producer"`
	How          string    `json:"how"`
	Messages     []message `json:"messages"`
	Tags         string    `json:"tags"`
	SQL          string    `json:"sql"`
	ConsumeFrom  string    `json:"consumeFrom"`
	Timestamp    string    `json:"timestamp"`
	Broadcasting bool      `json:"broadcasting"`
	Orderly      bool      `json:"orderly"`
	AtLeast      int       `json:"atLeast"`
	From         int       `json:"from"`
	Timeout      int64     `json:"timeout"`
	Fail         map[string]int
}

type listener struct {
	consumer rocketmq.PushConsumer
	lock     sync.Mutex
	seen     []map[string]any
	failed   map[string]int
}

var (
	namesrv   string
	lock      sync.Mutex
	producers = map[string]rocketmq.Producer{}
	listeners = map[string]*listener{}
	instances int64
)

func instance() string {
	return fmt.Sprintf("go%d-%d", os.Getpid(), atomic.AddInt64(&instances, 1))
}

func startProducer(c command) (any, error) {
	name := instance()
	made, err := rocketmq.NewProducer(producer.WithNameServer(primitive.NamesrvAddr{namesrv}), producer.WithGroupName(c.Group),
		producer.WithInstanceName(name), producer.WithRetry(2), producer.WithSendMsgTimeout(10*time.Second))
	if err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	producers[c.Name] = made
	return name, nil
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
	lock.Lock()
	using := producers[c.Producer]
	lock.Unlock()
	if using == nil {
		return nil, errors.New("no producer " + c.Producer)
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

func record(m *primitive.MessageExt) map[string]any {
	said := map[string]any{"topic": m.Topic, "key": strings.TrimSpace(m.GetKeys()), "tag": m.GetTags(), "body": string(m.Body), "offset": m.QueueOffset,
		"msgId": m.MsgId, "offsetMsgId": m.OffsetMsgId, "times": m.ReconsumeTimes, "born": m.BornTimestamp, "stored": m.StoreTimestamp,
		"at": time.Now().UnixMilli(), "props": m.GetProperties()}
	if m.Queue != nil {
		said["queue"] = m.Queue.QueueId
	}
	return said
}

func listen(c command) (any, error) {
	model, from := consumer.Clustering, consumer.ConsumeFromFirstOffset
	if c.Broadcasting {
		model = consumer.BroadCasting
	}
	if c.ConsumeFrom == "LAST_OFFSET" {
		from = consumer.ConsumeFromLastOffset
	} else if c.ConsumeFrom == "TIMESTAMP" {
		from = consumer.ConsumeFromTimestamp
	}
	options := []consumer.Option{consumer.WithNameServer(primitive.NamesrvAddr{namesrv}), consumer.WithGroupName(c.Group), consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(from), consumer.WithInstance(instance()), consumer.WithConsumerOrder(c.Orderly)}
	if c.Timestamp != "" {
		options = append(options, consumer.WithConsumeTimestamp(c.Timestamp))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if c.Tags != "" {
		selector.Expression = c.Tags
	}
	if c.SQL != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: c.SQL}
	}
	mine := &listener{consumer: made, failed: map[string]int{}, seen: []map[string]any{}}
	err = made.Subscribe(c.Topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mine.lock.Lock()
		defer mine.lock.Unlock()
		good := true
		for _, m := range messages {
			mine.seen = append(mine.seen, record(m))
			key := strings.TrimSpace(m.GetKeys())
			if wanted := c.Fail[key]; wanted != 0 {
				mine.failed[key]++
				good = good && wanted > 0 && mine.failed[key] > wanted
			}
		}
		if good {
			return consumer.ConsumeSuccess, nil
		}
		return consumer.ConsumeRetryLater, nil
	})
	if err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	listeners[c.Name] = mine
	return c.Name, nil
}

func (l *listener) from(place int) []map[string]any {
	l.lock.Lock()
	defer l.lock.Unlock()
	if place > len(l.seen) {
		place = len(l.seen)
	}
	return append([]map[string]any{}, l.seen[place:]...)
}

func seen(c command) (any, error) {
	lock.Lock()
	mine := listeners[c.Name]
	lock.Unlock()
	if mine == nil {
		return nil, errors.New("no consumer " + c.Name)
	}
	end := time.Now().Add(time.Duration(c.Timeout) * time.Millisecond)
	for len(mine.from(0)) < c.AtLeast && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	return mine.from(c.From), nil
}

func stopListening(c command) (any, error) {
	lock.Lock()
	mine := listeners[c.Name]
	delete(listeners, c.Name)
	lock.Unlock()
	if mine == nil {
		return nil, errors.New("no consumer " + c.Name)
	}
	err := mine.consumer.Shutdown()
	return mine.from(0), err
}

func stopProducer(c command) (any, error) {
	lock.Lock()
	mine := producers[c.Name]
	delete(producers, c.Name)
	lock.Unlock()
	if mine == nil {
		return nil, errors.New("no producer " + c.Name)
	}
	return true, mine.Shutdown()
}

func main() {
	namesrv = os.Args[1]
	rlog.SetLogLevel("error")
	deeds := map[string]func(command) (any, error){"producer": startProducer, "send": send, "listen": listen, "seen": seen,
		"stop-listening": stopListening, "stop-producer": stopProducer}
	out := json.NewEncoder(os.Stdout)
	var writing sync.Mutex
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 1<<20), 1<<26)
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		go func() {
			answer := map[string]any{"id": c.ID}
			deed := deeds[c.Do]
			if deed == nil {
				answer["error"] = map[string]any{"kind": "error", "message": "no such deed: " + c.Do}
			} else if result, err := deed(c); err != nil {
				answer["error"] = map[string]any{"kind": "error", "message": err.Error()}
			} else {
				answer["result"] = result
			}
			writing.Lock()
			defer writing.Unlock()
			if err := out.Encode(answer); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}
