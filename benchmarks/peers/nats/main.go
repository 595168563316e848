// natsload one|batch|read ADDRESS STREAM COUNT SIZE: prints how many messages went and how many seconds that took.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const senders = 16

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	mode, address, name := os.Args[1], os.Args[2], os.Args[3]
	count, err := strconv.ParseInt(os.Args[4], 10, 64)
	must(err)
	size, err := strconv.Atoi(os.Args[5])
	must(err)
	connection, err := nats.Connect("nats://" + address)
	must(err)
	defer connection.Close()
	streams, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(senders*32))
	must(err)
	ctx := context.Background()
	stream, err := streams.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}})
	must(err)
	body := make([]byte, size)
	begin := time.Now()
	switch mode {
	case "one":
		var left atomic.Int64
		left.Store(count)
		var all sync.WaitGroup
		for i := 0; i < senders; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for left.Add(-1) >= 0 {
					_, err := streams.Publish(ctx, name, body)
					must(err)
				}
			}()
		}
		all.Wait()
	case "batch":
		for i := int64(0); i < count; i++ {
			_, err := streams.PublishAsync(name, body)
			must(err)
		}
		<-streams.PublishAsyncComplete()
	default:
		consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		must(err)
		messages, err := consumer.Messages(jetstream.PullMaxMessages(500))
		must(err)
		for i := int64(0); i < count; i++ {
			_, err := messages.Next()
			must(err)
		}
		messages.Stop()
	}
	fmt.Printf("%d %.6f\n", count, time.Since(begin).Seconds())
}
