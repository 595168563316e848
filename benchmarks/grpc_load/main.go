// A raw gRPC generator for RocketMQ's MessagingService: calls one after the other on each of several workers, with
// nothing of a RocketMQ client but the generated messages. It prints one line of JSON.
//
//	load -address A -mode send     one message a call
//	load -address A -mode receive  32 messages a call, then an acknowledgement of each: one call a message, as the
//	                               official clients do it, or with -together one call for all of them
//	load -address A -mode idle     -count Telemetry streams, each on a connection of its own, until standard input ends
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var (
	address     = flag.String("address", "127.0.0.1:8081", "the proxy")
	mode        = flag.String("mode", "send", "send, receive or idle")
	topic       = flag.String("topic", "bench", "")
	group       = flag.String("group", "bench-group", "")
	broker      = flag.String("broker", "broker-a", "")
	seconds     = flag.Float64("seconds", 10, "how long at most")
	messages    = flag.Int64("messages", 1<<40, "how many messages at most")
	workers     = flag.Int("workers", 32, "")
	connections = flag.Int("connections", 4, "")
	size        = flag.Int("size", 1024, "bytes of a body")
	together    = flag.Bool("together", false, "acknowledge a batch by one call")
	count       = flag.Int("count", 5000, "idle streams")
)

func fail(what string, err error) {
	fmt.Fprintln(os.Stderr, what, err)
	os.Exit(1)
}

func described(id string) context.Context {
	return metadata.AppendToOutgoingContext(context.Background(),
		"x-mq-client-id", id, "x-mq-language", "GO", "x-mq-client-version", "5.1.4", "x-mq-protocol", "v2")
}

// Calls have a deadline, as those of the official clients: Apache's proxy cannot do without one.
func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(described("bench"), time.Minute)
}

func dial() *grpc.ClientConn {
	connection, err := grpc.Dial(*address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(8192), grpc.WithWriteBufferSize(8192))
	if err != nil {
		fail("dial", err)
	}
	return connection
}

// Makes a client known by its settings, and gives the stream, which must stay open.
func introduce(client v2.MessagingServiceClient, id string, isConsumer bool) v2.MessagingService_TelemetryClient {
	stream, err := client.Telemetry(described(id))
	if err != nil {
		fail("telemetry", err)
	}
	kind := v2.ClientType_PRODUCER
	settings := &v2.Settings{ClientType: &kind, RequestTimeout: durationpb.New(3 * time.Second)}
	if isConsumer {
		kind = v2.ClientType_SIMPLE_CONSUMER
		entry := &v2.SubscriptionEntry{Topic: &v2.Resource{Name: *topic},
			Expression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"}}
		settings.PubSub = &v2.Settings_Subscription{Subscription: &v2.Subscription{
			Group: &v2.Resource{Name: *group}, Subscriptions: []*v2.SubscriptionEntry{entry}}}
	} else {
		settings.PubSub = &v2.Settings_Publishing{Publishing: &v2.Publishing{Topics: []*v2.Resource{{Name: *topic}}}}
	}
	if err := stream.Send(&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}}); err != nil {
		fail("settings", err)
	}
	if _, err := stream.Recv(); err != nil {
		fail("settings", err)
	}
	return stream
}

type worker struct {
	client v2.MessagingServiceClient
	number int
	took   []time.Duration
	failed string
}

func (w *worker) send(turn int) int64 {
	id := fmt.Sprintf("01%012X%04X%08X%08X", os.Getpid(), w.number, time.Now().UnixNano()&0xFFFFFFFF, turn)
	request := &v2.SendMessageRequest{Messages: []*v2.Message{{
		Topic: &v2.Resource{Name: *topic},
		SystemProperties: &v2.SystemProperties{MessageId: id, MessageType: v2.MessageType_NORMAL,
			BodyEncoding: v2.Encoding_IDENTITY, BornTimestamp: timestamppb.Now(), BornHost: "bench"},
		Body: make([]byte, *size),
	}}}
	deadline, cancel := limited()
	defer cancel()
	answer, err := w.client.SendMessage(deadline, request)
	if err != nil {
		w.failed = err.Error()
		return -1
	}
	if answer.Status.Code != v2.Code_OK {
		w.failed = answer.Status.String()
		return -1
	}
	return 1
}

func (w *worker) receive() int64 {
	request := &v2.ReceiveMessageRequest{
		Group:              &v2.Resource{Name: *group},
		MessageQueue:       &v2.MessageQueue{Topic: &v2.Resource{Name: *topic}, Broker: &v2.Broker{Name: *broker}},
		FilterExpression:   &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
		BatchSize:          32,
		InvisibleDuration:  durationpb.New(10 * time.Minute),
		LongPollingTimeout: durationpb.New(5 * time.Second),
	}
	deadline, cancel := limited()
	defer cancel()
	stream, err := w.client.ReceiveMessage(deadline, request)
	if err != nil {
		w.failed = err.Error()
		return -1
	}
	var found []*v2.AckMessageEntry
	for {
		answer, err := stream.Recv()
		if err != nil {
			break
		}
		if message := answer.GetMessage(); message != nil {
			found = append(found, &v2.AckMessageEntry{MessageId: message.SystemProperties.MessageId,
				ReceiptHandle: message.SystemProperties.GetReceiptHandle()})
		} else if status := answer.GetStatus(); status != nil && status.Code != v2.Code_OK {
			w.failed = status.String()
		}
	}
	if len(found) == 0 {
		return -1
	}
	step := 1
	if *together {
		step = len(found)
	}
	for at := 0; at < len(found); at += step {
		entries := found[at:min(at+step, len(found))]
		ack := &v2.AckMessageRequest{Group: request.Group, Topic: request.MessageQueue.Topic, Entries: entries}
		answer, err := w.client.AckMessage(deadline, ack)
		if err != nil {
			w.failed = err.Error()
			return -1
		}
		if answer.Status.Code != v2.Code_OK {
			w.failed = answer.Status.String()
			return -1
		}
	}
	return int64(len(found))
}

func main() {
	flag.Parse()
	if *mode == "idle" {
		idle()
		return
	}
	clients := make([]v2.MessagingServiceClient, *connections)
	for number := range clients {
		clients[number] = v2.NewMessagingServiceClient(dial())
	}
	introduce(clients[0], "bench", *mode == "receive")
	began := time.Now()
	until := began.Add(time.Duration(*seconds * float64(time.Second)))
	var done atomic.Int64
	var last atomic.Int64
	all := make([]*worker, *workers)
	var group sync.WaitGroup
	for number := range all {
		w := &worker{client: clients[number%len(clients)], number: number}
		all[number] = w
		group.Add(1)
		go func() {
			defer group.Done()
			for turn := 0; time.Now().Before(until) && done.Load() < *messages; turn++ {
				at := time.Now()
				var got int64
				if *mode == "send" {
					got = w.send(turn)
				} else {
					got = w.receive()
				}
				if got < 0 {
					return
				}
				w.took = append(w.took, time.Since(at))
				done.Add(got)
				last.Store(int64(time.Since(began)))
			}
		}()
	}
	group.Wait()
	var took []time.Duration
	failures := map[string]int{}
	for _, w := range all {
		took = append(took, w.took...)
		if w.failed != "" {
			failures[w.failed]++
		}
	}
	sort.Slice(took, func(a, b int) bool { return took[a] < took[b] })
	at := func(share float64) float64 {
		if len(took) == 0 {
			return 0
		}
		return float64(took[int(share*float64(len(took)-1))]) / 1e6
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"messages": done.Load(), "rounds": len(took),
		"seconds": float64(last.Load()) / 1e9, "p50_ms": at(0.5), "p99_ms": at(0.99), "failures": failures})
}

// Streams that nobody speaks on, as of clients that only wait.
func idle() {
	streams := make([]v2.MessagingService_TelemetryClient, *count)
	var group sync.WaitGroup
	turns := make(chan int)
	for range 32 {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := range turns {
				client := v2.NewMessagingServiceClient(dial())
				streams[number] = introduce(client, fmt.Sprintf("idle-%d", number), number%2 == 0)
			}
		}()
	}
	for number := range streams {
		turns <- number
	}
	close(turns)
	group.Wait()
	fmt.Println("open")
	bufio.NewReader(os.Stdin).ReadString('\n')
	for _, stream := range streams {
		stream.CloseSend()
	}
}
