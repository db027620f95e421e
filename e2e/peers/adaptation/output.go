package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// fields is one output line; encoding/json sorts the keys.
type fields map[string]any

// printer writes one JSON object per line; the library calls in from many goroutines.
type printer struct {
	mu  sync.Mutex
	out *bufio.Writer
}

var output = &printer{out: bufio.NewWriterSize(os.Stdout, 1<<16)}

// print stamps the line with CLOCK_MONOTONIC, so that a parent process on the same
// machine can subtract its own readings.
func (p *printer) print(line fields) {
	if _, stamped := line["mono_ns"]; !stamped {
		line["mono_ns"] = monotonicNs()
	}
	text, err := json.Marshal(line)
	if err != nil {
		text, _ = json.Marshal(fields{"event": "internal_error", "text": err.Error()})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(text)
	p.out.WriteByte('\n')
	p.out.Flush()
}

func event(name string, line fields) {
	line["event"] = name
	output.print(line)
}

func monotonicNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Now().UnixNano()
	}
	return now.Nano()
}

// asJSON gives the protobuf JSON form; nil messages become null.
func asJSON(message proto.Message) json.RawMessage {
	if message == nil || !message.ProtoReflect().IsValid() {
		return json.RawMessage("null")
	}
	text, err := protojson.Marshal(message)
	if err != nil {
		text, _ = json.Marshal(fields{"marshal_error": err.Error()})
	}
	return text
}

// listAsJSON drops nil entries: the library appends one when nobody updated the container.
func listAsJSON[M proto.Message](messages []M) []json.RawMessage {
	list := []json.RawMessage{}
	for _, message := range messages {
		if message.ProtoReflect().IsValid() {
			list = append(list, asJSON(message))
		}
	}
	return list
}
