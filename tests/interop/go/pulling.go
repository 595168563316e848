package main

import (
	"context"
	"errors"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// The pull consumer: it pulls from a place, and polls what its queues bring.
var pullers = map[string]rocketmq.PullConsumer{}

var pullStatus = map[primitive.PullStatus]string{primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG",
	primitive.PullNoMsgMatched: "NO_MATCHED_MSG", primitive.PullOffsetIllegal: "OFFSET_ILLEGAL", primitive.PullBrokerTimeout: "TIMEOUT"}

func startPuller(c command) (any, error) {
	name := instance()
	options := []consumer.Option{consumer.WithNameServer(primitive.NamesrvAddr{namesrv}), consumer.WithGroupName(c.Group), consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}
	if c.MaxReconsume != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(*c.MaxReconsume))
	}
	made, err := rocketmq.NewPullConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err = made.Subscribe(c.Topic, selector(c)); err != nil {
		return nil, err
	}
	if err = made.Start(); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	pullers[c.Name] = made
	return name, nil
}

func pullerOf(c command) (rocketmq.PullConsumer, *primitive.MessageQueue, error) {
	lock.Lock()
	defer lock.Unlock()
	if found := pullers[c.Name]; found != nil {
		return found, &primitive.MessageQueue{Topic: c.Topic, BrokerName: "broker-a", QueueId: c.Queue}, nil
	}
	return nil, nil, errors.New("no puller " + c.Name)
}

func stopPuller(c command) (any, error) {
	mine, _, err := pullerOf(c)
	if err != nil {
		return nil, err
	}
	lock.Lock()
	delete(pullers, c.Name)
	lock.Unlock()
	return true, mine.Shutdown()
}

func records(messages []*primitive.MessageExt) []map[string]any {
	said := []map[string]any{}
	for _, m := range messages {
		said = append(said, record(m))
	}
	return said
}

func pull(c command) (any, error) {
	mine, queue, err := pullerOf(c)
	if err != nil {
		return nil, err
	}
	if c.Most == 0 {
		c.Most = 32
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	found, err := mine.PullFrom(ctx, queue, c.Offset, c.Most)
	if err != nil {
		return nil, err
	}
	return map[string]any{"status": pullStatus[found.Status], "next": found.NextBeginOffset, "min": found.MinOffset, "max": found.MaxOffset,
		"messages": records(found.GetMessageExts())}, nil
}

func commit(c command) (any, error) {
	mine, queue, err := pullerOf(c)
	if err != nil {
		return nil, err
	}
	if err = mine.UpdateOffset(queue, c.Offset); err != nil {
		return nil, err
	}
	return true, mine.PersistOffset(context.Background(), c.Topic)
}

func committed(c command) (any, error) {
	mine, queue, err := pullerOf(c)
	if err != nil {
		return nil, err
	}
	return mine.CurrentOffset(queue)
}

// Polls and acknowledges until so many came or the time is over; a message whose key is to fail is handed back.
func poll(c command) (any, error) {
	mine, _, err := pullerOf(c)
	if err != nil {
		return nil, err
	}
	found := []map[string]any{}
	end := time.Now().Add(time.Duration(c.Timeout) * time.Millisecond)
	for len(found) < c.AtLeast && time.Now().Before(end) {
		request, err := mine.Poll(context.Background(), 200*time.Millisecond)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		result := consumer.ConsumeSuccess
		for _, m := range request.GetMsgList() {
			said := record(m)
			found = append(found, said)
			if c.Fail[said["key"].(string)] > int(m.ReconsumeTimes) {
				result = consumer.ConsumeRetryLater
			}
		}
		mine.ACK(context.Background(), request, result)
	}
	return found, nil
}
