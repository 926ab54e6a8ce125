package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// errGone is returned for calls of a browser that has ended.
var errGone = errors.New("chromium has ended")

// message is a message of the DevTools protocol: a command, its answer or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

// failure is the error of a command.
type failure struct {
	Message string `json:"message"`
}

// link sends commands to Chromium, and distributes answers and events. Its methods may be called concurrently.
type link struct {
	mu   sync.Mutex
	to   io.Writer
	last int
	// waiting has the calls without an answer. It is nil after the end.
	waiting map[int]chan message
	// sessions get the events of pages.
	sessions map[string]func(method string, params json.RawMessage)
}

func newLink(to io.Writer) *link {
	return &link{to: to, waiting: map[int]chan message{},
		sessions: map[string]func(string, json.RawMessage){}}
}

// call sends a command to a session, or to the browser if session is empty, and decodes the result if it is not nil.
func (l *link) call(ctx context.Context, session, method string, params, result any) error {
	answer, err := l.send(message{Session: session, Method: method, Params: params})
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: %w", method, errGone)
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// send writes a command, which ends with a zero byte. It returns the channel of the answer.
func (l *link) send(m message) (<-chan message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		return nil, errGone
	}
	l.last++
	m.ID = l.last
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	l.waiting[m.ID] = answer
	_, err = l.to.Write(append(text, 0))
	return answer, err
}

// follow passes the events of a session on. The function is called from one goroutine.
func (l *link) follow(session string, event func(method string, params json.RawMessage)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[session] = event
}

// read distributes what Chromium sends until it ends.
func (l *link) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		if err != nil {
			break
		}
		var params json.RawMessage
		m := message{Params: &params}
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue // an answer that is no object is lost, and its call ends with its context
		}
		l.distribute(m, params)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, answer := range l.waiting {
		close(answer)
	}
	l.waiting = nil
}

func (l *link) distribute(m message, params json.RawMessage) {
	l.mu.Lock()
	answer, event := l.waiting[m.ID], l.sessions[m.Session]
	delete(l.waiting, m.ID)
	l.mu.Unlock()
	switch {
	case answer != nil:
		answer <- m
	case m.ID == 0 && event != nil:
		event(m.Method, params)
	}
}
