package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Push consumers, and what they have seen.
type listener struct {
	consumer rocketmq.PushConsumer
	asked    command
	journal  *os.File
	lock     sync.Mutex
	seen     []any
	failed   map[string]int
}

var listeners = map[string]*listener{}

func record(m *primitive.MessageExt) map[string]any {
	said := map[string]any{"topic": m.Topic, "key": strings.TrimSpace(m.GetKeys()), "tag": m.GetTags(), "body": string(m.Body), "offset": m.QueueOffset,
		"msgId": m.MsgId, "offsetMsgId": m.OffsetMsgId, "times": m.ReconsumeTimes, "born": m.BornTimestamp, "stored": m.StoreTimestamp,
		"at": time.Now().UnixMilli(), "props": m.GetProperties()}
	if m.Queue != nil {
		said["queue"] = m.Queue.QueueId
	}
	return said
}

// Notes the messages and says whether they count as consumed.
func (l *listener) take(messages []*primitive.MessageExt) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	good := true
	for _, m := range messages {
		queue := -1
		if m.Queue != nil {
			queue = m.Queue.QueueId
		}
		line := fmt.Sprintf("%s@%d@%d", m.Body, queue, m.QueueOffset)
		if l.journal != nil { // a line that outlives this process
			fmt.Fprintf(l.journal, "%s@%d\n", line, time.Now().UnixMilli())
		}
		if l.asked.Brief {
			l.seen = append(l.seen, line)
		} else {
			l.seen = append(l.seen, record(m))
		}
		key := strings.TrimSpace(m.GetKeys())
		if wanted := l.asked.Fail[key]; wanted != 0 {
			l.failed[key]++
			good = good && wanted > 0 && l.failed[key] > wanted
		}
	}
	return good
}

func (l *listener) reply(m *primitive.MessageExt) {
	using, err := producerOf(l.asked.Replier)
	if err == nil {
		var answer *primitive.Message
		if answer, err = consumer.CreateReplyMessage(m, nil); err == nil {
			answer.Body = []byte("answer to " + string(m.Body)) // the client's own call leaves the body out
			_, err = using.SendSync(context.Background(), answer)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (l *listener) consume(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	good := l.take(messages)
	if l.asked.Replier != "" {
		for _, m := range messages {
			l.reply(m)
		}
	}
	if good {
		return consumer.ConsumeSuccess, nil
	}
	if l.asked.Orderly {
		return consumer.SuspendCurrentQueueAMoment, nil
	}
	if wish, known := primitive.GetConcurrentlyCtx(ctx); known {
		wish.DelayLevelWhenNextConsume = l.asked.FailDelay
	}
	return consumer.ConsumeRetryLater, nil
}

func listen(c command) (any, error) {
	model, from, name := consumer.Clustering, consumer.ConsumeFromFirstOffset, instance()
	if c.Broadcasting {
		model = consumer.BroadCasting
	}
	if c.ConsumeFrom == "LAST_OFFSET" {
		from = consumer.ConsumeFromLastOffset
	} else if c.ConsumeFrom == "TIMESTAMP" {
		from = consumer.ConsumeFromTimestamp
	}
	options := []consumer.Option{consumer.WithNameServer(primitive.NamesrvAddr{namesrv}), consumer.WithGroupName(c.Group), consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(from), consumer.WithInstance(name), consumer.WithConsumerOrder(c.Orderly),
		consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond)}
	if c.Timestamp != "" {
		options = append(options, consumer.WithConsumeTimestamp(c.Timestamp))
	}
	if c.MaxReconsume != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(*c.MaxReconsume))
	}
	if c.Batch > 0 {
		options = append(options, consumer.WithConsumeMessageBatchMaxSize(c.Batch))
	}
	if key := os.Getenv("HAND_ACCESS_KEY"); key != "" {
		options = append(options, consumer.WithCredentials(primitive.Credentials{AccessKey: key, SecretKey: os.Getenv("HAND_SECRET_KEY")}))
	}
	if c.Trace {
		options = append(options, consumer.WithTrace(&primitive.TraceConfig{GroupName: c.Group, Access: primitive.Local, NamesrvAddrs: []string{namesrv}}))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	mine := &listener{consumer: made, asked: c, failed: map[string]int{}, seen: []any{}}
	if c.Journal != "" {
		if mine.journal, err = os.Create(c.Journal); err != nil {
			return nil, err
		}
	}
	if err = made.Subscribe(c.Topic, selector(c), mine.consume); err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	listeners[c.Name] = mine
	return name, nil
}

func selector(c command) consumer.MessageSelector {
	if c.SQL != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: c.SQL}
	}
	if c.Tags != "" {
		return consumer.MessageSelector{Type: consumer.TAG, Expression: c.Tags}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
}

func (l *listener) count() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.seen)
}

func (l *listener) from(place int) []any {
	l.lock.Lock()
	defer l.lock.Unlock()
	if place > len(l.seen) {
		place = len(l.seen)
	}
	return append([]any{}, l.seen[place:]...)
}

func listenerOf(name string) (*listener, error) {
	lock.Lock()
	defer lock.Unlock()
	if found := listeners[name]; found != nil {
		return found, nil
	}
	return nil, errors.New("no consumer " + name)
}

func seen(c command) (any, error) {
	mine, err := listenerOf(c.Name)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(time.Duration(c.Timeout) * time.Millisecond)
	for mine.count() < c.AtLeast && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	return mine.from(c.From), nil
}

func stopListening(c command) (any, error) {
	mine, err := listenerOf(c.Name)
	if err != nil {
		return nil, err
	}
	lock.Lock()
	delete(listeners, c.Name)
	lock.Unlock()
	err = mine.consumer.Shutdown()
	return mine.from(0), err
}
