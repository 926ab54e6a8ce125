package soak_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"
)

// at is a published port, on every address of the host.
type at struct {
	proto model.Proto
	port  uint16
}

// unanswered is the owner of a port that is not published.
const unanswered = "none"

// owners returns which workload answers on each port.
func owners(all []model.Publish) map[at]string {
	own := map[at]string{}
	for _, p := range all {
		for i := range p.HostPorts.Len() {
			own[at{p.Proto, p.HostPorts.First + uint16(i)}] = fmt.Sprintf("%s:%d", p.Endpoint, p.Ports.First+uint16(i))
		}
	}
	return own
}

// ledger records which workloads may currently answer on which port. It is safe for concurrent use.
type ledger struct {
	mu sync.Mutex
	// may lists the possible owners of each port that ever had one. During a change there are
	// several.
	may     map[at][]string
	windows map[*window]bool
}

// window records which workloads may answer on a port during a period.
type window struct {
	at  at
	may []string
}

func newLedger() *ledger { return &ledger{may: map[at][]string{}, windows: map[*window]bool{}} }

// begin records that a change to these owners begins.
func (l *ledger) begin(own map[at]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for port, name := range own {
		if l.may[port] == nil {
			l.may[port] = []string{unanswered}
		}
		l.add(port, name)
	}
	for port := range l.may {
		if own[port] == "" {
			l.add(port, unanswered)
		}
	}
}

func (l *ledger) add(port at, name string) {
	l.may[port] = with(l.may[port], name)
	for w := range l.windows {
		if w.at == port {
			w.may = with(w.may, name)
		}
	}
}

func with(all []string, name string) []string {
	if slices.Contains(all, name) {
		return all
	}
	return append(slices.Clip(all), name)
}

// end records that the change is complete: only these owners may answer.
func (l *ledger) end(own map[at]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for port := range l.may {
		l.may[port] = []string{unanswered}
		if own[port] != "" {
			l.may[port] = []string{own[port]}
		}
	}
}

// open begins a window for a port, and returns how long to wait for an answer.
func (l *ledger) open(port at) (w *window, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w = &window{at: port, may: l.may[port]}
	if len(w.may) == 0 {
		w.may = []string{unanswered}
	}
	l.windows[w] = true
	if len(w.may) == 1 && w.may[0] == unanswered {
		return w, vain
	}
	return w, place.Timeout
}

// close ends the window, and returns an error if the answer was not allowed.
func (l *ledger) close(w *window, answer string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.windows, w)
	changed := len(w.may) > 1
	switch {
	case err == nil && !slices.Contains(w.may, answer):
		return fmt.Errorf("%s %d: %q answers, want one of %q", w.at.proto, w.at.port, answer, w.may)
	case err != nil && !changed && w.may[0] != unanswered:
		return fmt.Errorf("%s %d: %s does not answer: %w", w.at.proto, w.at.port, w.may[0], err)
	}
	return nil
}
