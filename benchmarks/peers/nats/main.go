// natsload one|batch ADDRESS STREAM SIZE WARM_S WINDOW_S sends for so long, natsload read ADDRESS STREAM SKIP COUNT reads so
// many. Says "begin" when it is warm, and "end MESSAGES SECONDS" when the window is over.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const senders, batch = 16, 32

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	must(err)
	return value
}

func begin() time.Time {
	fmt.Println("begin")
	return time.Now()
}

func end(messages int64, since time.Time) {
	fmt.Printf("end %d %.6f\n", messages, time.Since(since).Seconds())
}

func main() {
	mode, address, name := os.Args[1], os.Args[2], os.Args[3]
	connection, err := nats.Connect("nats://" + address)
	must(err)
	streams, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(senders*batch))
	must(err)
	ctx := context.Background()
	configuration := jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage}
	stream, err := streams.CreateOrUpdateStream(ctx, configuration)
	must(err)
	if mode == "read" {
		read(ctx, stream, int64(number(os.Args[4])), int64(number(os.Args[5])))
		return
	}
	body := make([]byte, int(number(os.Args[4])))
	var acknowledged atomic.Int64
	if mode == "one" {
		for i := 0; i < senders; i++ {
			go func() {
				for {
					_, err := streams.Publish(ctx, name, body)
					must(err)
					acknowledged.Add(1)
				}
			}()
		}
	} else {
		go func() { // what was sent and is no longer pending was acknowledged
			for sent := int64(1); ; sent++ {
				_, err := streams.PublishAsync(name, body)
				must(err)
				if sent%64 == 0 {
					acknowledged.Store(sent - int64(streams.PublishAsyncPending()))
				}
			}
		}()
	}
	time.Sleep(time.Duration(number(os.Args[5]) * float64(time.Second)))
	before, since := acknowledged.Load(), begin()
	time.Sleep(time.Duration(number(os.Args[6]) * float64(time.Second)))
	end(acknowledged.Load()-before, since)
}

func read(ctx context.Context, stream jetstream.Stream, skip, count int64) {
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	must(err)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1000))
	must(err)
	var since time.Time
	for i := int64(0); i < count; i++ {
		if i == skip {
			since = begin()
		}
		_, err := messages.Next()
		must(err)
	}
	end(count-skip, since)
}
