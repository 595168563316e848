// A hand around RocketMQ's Go client of the 5.x line; the deeds are those of the other hands in this folder.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type command map[string]any

var (
	endpoints string
	lock      sync.Mutex
	producers = map[string]rmq.Producer{}
	simple    = map[string]rmq.SimpleConsumer{}
	push      = map[string]rmq.PushConsumer{}
	consumed  = map[string][]map[string]any{}
	messages  = map[string]*rmq.MessageView{}
	checked   = []string{}
)

func (c command) text(name string) string {
	if value, ok := c[name].(string); ok {
		return value
	}
	return ""
}

func (c command) number(name string, otherwise int) int {
	if value, ok := c[name].(float64); ok {
		return int(value)
	}
	return otherwise
}

func (c command) duration(name string, otherwise int) time.Duration {
	return time.Duration(c.number(name, otherwise)) * time.Millisecond
}

func config(group string) *rmq.Config {
	user := &credentials.SessionCredentials{
		AccessKey: os.Getenv("HAND_ACCESS_KEY"), AccessSecret: os.Getenv("HAND_SECRET_KEY"),
	}
	return &rmq.Config{Endpoint: endpoints, ConsumerGroup: group, Credentials: user}
}

func producer(topic string) (rmq.Producer, error) {
	lock.Lock()
	defer lock.Unlock()
	if made, ok := producers[topic]; ok {
		return made, nil
	}
	checker := &rmq.TransactionChecker{Check: func(view *rmq.MessageView) rmq.TransactionResolution {
		lock.Lock()
		checked = append(checked, string(view.GetBody()))
		lock.Unlock()
		switch view.GetProperties()["outcome"] {
		case "commit":
			return rmq.COMMIT
		case "rollback":
			return rmq.ROLLBACK
		}
		return rmq.UNKNOWN
	}}
	made, err := rmq.NewProducer(config(""), rmq.WithTopics(topic), rmq.WithTransactionChecker(checker))
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	producers[topic] = made
	return made, nil
}

func message(c command, body string) *rmq.Message {
	made := &rmq.Message{Topic: c.text("topic"), Body: []byte(body)}
	if tag := c.text("tag"); tag != "" {
		made.SetTag(tag)
	}
	if keys, ok := c["keys"].([]any); ok {
		texts := []string{}
		for _, key := range keys {
			texts = append(texts, key.(string))
		}
		made.SetKeys(texts...)
	}
	if group := c.text("message_group"); group != "" {
		made.SetMessageGroup(group)
	}
	if delay := c.number("delay_ms", 0); delay > 0 {
		made.SetDelayTimestamp(time.Now().Add(time.Duration(delay) * time.Millisecond))
	}
	if properties, ok := c["properties"].(map[string]any); ok {
		for key, value := range properties {
			made.AddProperty(key, value.(string))
		}
	}
	return made
}

func expression(c command) map[string]*rmq.FilterExpression {
	made := rmq.SUB_ALL
	if sql := c.text("sql"); sql != "" {
		made = rmq.NewFilterExpressionWithType(sql, rmq.SQL92)
	} else if tags := c.text("tags"); tags != "" {
		made = rmq.NewFilterExpression(tags)
	}
	return map[string]*rmq.FilterExpression{c.text("topic"): made}
}

func shown(view *rmq.MessageView) map[string]any {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	return map[string]any{
		"id": view.GetMessageId(), "topic": view.GetTopic(), "body": string(view.GetBody()), "tag": view.GetTag(),
		"keys": keys, "properties": view.GetProperties(), "group": view.GetMessageGroup(),
		"attempt": view.GetDeliveryAttempt(), "at": time.Now().UnixMilli(),
	}
}

func await(done func() bool, wait time.Duration) {
	end := time.Now().Add(wait)
	for !done() && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
}

func deed(c command) (any, error) {
	ctx := context.Background()
	name := c.text("name")
	switch c.text("do") {
	case "send", "send_many":
		made, err := producer(c.text("topic"))
		if err != nil {
			return nil, err
		}
		if c.text("do") == "send" {
			receipts, err := made.Send(ctx, message(c, c.text("body")))
			if err != nil {
				return nil, err
			}
			return map[string]any{"id": receipts[0].MessageID, "recall": receipts[0].RecallHandle}, nil
		}
		ids := []string{}
		for _, body := range c["bodies"].([]any) {
			receipts, err := made.Send(ctx, message(c, body.(string)))
			if err != nil {
				return nil, err
			}
			ids = append(ids, receipts[0].MessageID)
		}
		return ids, nil
	case "transaction":
		made, err := producer(c.text("topic"))
		if err != nil {
			return nil, err
		}
		transaction := made.BeginTransaction()
		receipts, err := made.SendWithTransaction(ctx, message(c, c.text("body")), transaction)
		if err != nil {
			return nil, err
		}
		switch c.text("end") {
		case "commit":
			err = transaction.Commit()
		case "rollback":
			err = transaction.RollBack()
		}
		return map[string]any{"id": receipts[0].MessageID}, err
	case "checked":
		await(func() bool { lock.Lock(); defer lock.Unlock(); return len(checked) >= c.number("number", 1) }, c.duration("wait_ms", 0))
		lock.Lock()
		defer lock.Unlock()
		return append([]string{}, checked...), nil
	case "recall":
		made, err := producer(c.text("topic"))
		if err != nil {
			return nil, err
		}
		id, err := made.Recall(ctx, c.text("topic"), c.text("handle"))
		return map[string]any{"id": id}, err
	case "simple":
		made, err := rmq.NewSimpleConsumer(config(c.text("group")),
			rmq.WithSimpleAwaitDuration(c.duration("await_ms", 5000)), rmq.WithSimpleSubscriptionExpressions(expression(c)))
		if err != nil {
			return nil, err
		}
		lock.Lock()
		simple[name] = made
		lock.Unlock()
		return nil, made.Start()
	case "receive":
		found := []map[string]any{}
		end := time.Now().Add(c.duration("wait_ms", 0))
		for len(found) < c.number("number", 1) && time.Now().Before(end) {
			views, err := simple[name].Receive(ctx, int32(c.number("max", 16)), c.duration("invisible_ms", 15000))
			if err != nil && !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") { // this client reports it as an error
				return nil, err
			}
			lock.Lock()
			for _, view := range views {
				messages[view.GetMessageId()] = view
				found = append(found, shown(view))
			}
			lock.Unlock()
		}
		return found, nil
	case "ack":
		for _, id := range c["ids"].([]any) {
			if err := simple[name].Ack(ctx, messages[id.(string)]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "change":
		return nil, simple[name].ChangeInvisibleDuration(messages[c.text("id_of")], c.duration("invisible_ms", 0))
	case "push":
		failures := map[string]int{}
		if given, ok := c["failures"].(map[string]any); ok {
			for body, times := range given {
				failures[body] = int(times.(float64))
			}
		}
		made, err := rmq.NewPushConsumer(config(c.text("group")),
			rmq.WithPushAwaitDuration(5*time.Second), rmq.WithPushSubscriptionExpressions(expression(c)),
			rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
				time.Sleep(c.duration("work_ms", 0))
				lock.Lock()
				defer lock.Unlock()
				consumed[name] = append(consumed[name], shown(view))
				if failures[string(view.GetBody())] > 0 {
					failures[string(view.GetBody())]--
					return rmq.FAILURE
				}
				return rmq.SUCCESS
			}}))
		if err != nil {
			return nil, err
		}
		push[name] = made
		return nil, made.Start()
	case "pushed":
		await(func() bool { lock.Lock(); defer lock.Unlock(); return len(consumed[name]) >= c.number("number", 1) }, c.duration("wait_ms", 0))
		lock.Lock()
		defer lock.Unlock()
		return append([]map[string]any{}, consumed[name]...), nil
	case "close":
		if made, ok := simple[name]; ok {
			return nil, made.GracefulStop()
		}
		return nil, push[name].GracefulStop()
	}
	return nil, fmt.Errorf("no such deed: %s", c.text("do"))
}

func main() {
	endpoints = os.Args[1]
	rmq.EnableSsl = len(os.Args) > 2 && os.Args[2] == "tls"
	rmq.ResetLogger()
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 1<<20), 1<<26)
	var out sync.Mutex
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			panic(err)
		}
		go func() {
			answer := map[string]any{"id": c["id"]}
			result, err := deed(c)
			if err != nil {
				problem := map[string]any{"kind": fmt.Sprintf("%T", err), "message": err.Error()}
				var status *rmq.ErrRpcStatus
				if errors.As(err, &status) {
					problem["code"] = status.Code
				}
				answer["error"] = problem
			} else {
				answer["result"] = result
			}
			line, _ := json.Marshal(answer)
			out.Lock()
			defer out.Unlock()
			os.Stdout.Write(append(line, '\n'))
		}()
	}
}
