// A hand that moves the Go client as it is told: see oracle/hand.py for the deeds.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type message struct {
	Key   string            `json:"key"`
	Tag   string            `json:"tag"`
	Body  string            `json:"body"`
	Props map[string]string `json:"props"`
	Delay int               `json:"delay"`
	Queue *int              `json:"queue"`
}

type command struct {
	ID            int64          `json:"id"`
	Do            string         `json:"do"`
	Name          string         `json:"name"`
	Group         string         `json:"group"`
	Topic         string         `json:"topic"`
	Producer      string         `json:"producer"`
	Transactional bool           `json:"transactional"`
	Trace         bool           `json:"trace"`
	How           string         `json:"how"`
	Messages      []message      `json:"messages"`
	Key           string         `json:"key"`
	Body          string         `json:"body"`
	Keys          int            `json:"keys"`
	Count         int            `json:"count"`
	Threads       int            `json:"threads"`
	Tags          string         `json:"tags"`
	SQL           string         `json:"sql"`
	ConsumeFrom   string         `json:"consumeFrom"`
	Timestamp     string         `json:"timestamp"`
	Broadcasting  bool           `json:"broadcasting"`
	Orderly       bool           `json:"orderly"`
	Brief         bool           `json:"brief"`
	Batch         int            `json:"batch"`
	Journal       string         `json:"journal"`
	Fail          map[string]int `json:"fail"`
	FailDelay     int            `json:"failDelay"`
	MaxReconsume  *int32         `json:"maxReconsume"`
	Suspend       int            `json:"suspend"`
	Replier       string         `json:"replier"`
	Queue         int            `json:"queue"`
	Offset        int64          `json:"offset"`
	Most          int            `json:"most"`
	AtLeast       int            `json:"atLeast"`
	From          int            `json:"from"`
	Timeout       int64          `json:"timeout"`
}

var (
	namesrv   string
	lock      sync.Mutex
	instances int64
)

func instance() string {
	return fmt.Sprintf("go%d-%d", os.Getpid(), atomic.AddInt64(&instances, 1))
}

func main() {
	namesrv = os.Args[1]
	rlog.SetLogLevel("error")
	deeds := map[string]func(command) (any, error){
		"producer": startProducer, "stop-producer": stopProducer, "send": send, "flood": flood, "transact": transact,
		"checked": checked, "request": request,
		"listen": listen, "stop-listening": stopListening, "seen": seen,
		"puller": startPuller, "stop-puller": stopPuller, "pull": pull, "commit": commit, "committed": committed, "poll": poll,
	}
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
