// Gives a history of sends and reads to Porcupine, a published checker of linearizability, as a second opinion.
//
//	go run . HISTORY.jsonl
//
// Each queue is an append-only log: a send returns the place at the end of the log at some moment between its call and
// its return; a read of a place returns what was appended there. Ends with 1 if no order of the calls explains that.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type call struct {
	Process int     `json:"process"`
	Queue   int     `json:"queue"`
	Kind    string  `json:"kind"`
	Value   string  `json:"value"`
	Call    float64 `json:"call"`
	Return  float64 `json:"return"`
	Offset  int     `json:"offset"`
}

// What was appended, by place. States share what they have in common.
type state struct {
	before *state
	value  string
	length int
}

func (s *state) at(place int) string {
	for s != nil && s.length > place+1 {
		s = s.before
	}
	if s == nil || s.length != place+1 {
		return ""
	}
	return s.value
}

var log = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byQueue := map[int][]porcupine.Operation{}
		for _, operation := range history {
			queue := operation.Input.(call).Queue
			byQueue[queue] = append(byQueue[queue], operation)
		}
		parts := [][]porcupine.Operation{}
		for _, part := range byQueue {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return (*state)(nil) },
	Step: func(before, input, output interface{}) (bool, interface{}) {
		known, asked, place := before.(*state), input.(call), output.(int)
		if asked.Kind == "read" {
			return known.at(place) == asked.Value, known
		}
		length := 0
		if known != nil {
			length = known.length
		}
		return place == length, &state{known, asked.Value, length + 1}
	},
	Equal: func(one, other interface{}) bool { return one.(*state) == other.(*state) },
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	history := []porcupine.Operation{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		one := call{Offset: -1}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		history = append(history, porcupine.Operation{
			ClientId: one.Process, Input: one, Output: one.Offset,
			Call: int64(one.Call * 1e9), Return: int64(one.Return * 1e9),
		})
	}
	verdict := porcupine.CheckOperationsTimeout(log, history, 2*time.Minute)
	fmt.Printf("porcupine: %d calls, linearizable: %s\n", len(history), verdict)
	if verdict != porcupine.Ok {
		os.Exit(1)
	}
}
