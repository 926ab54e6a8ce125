package soak_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"fairlead/internal/model"
)

// at is a published port, on every address of the host.
type at struct {
	proto model.Proto
	port  uint16
}

// nobody is who answers on a port that is not published.
const nobody = "nobody"

// owners tells who answers where.
func owners(all []model.Publish) map[at]string {
	own := map[at]string{}
	for _, p := range all {
		for i := range p.HostPorts.Len() {
			own[at{p.Proto, p.HostPorts.First + uint16(i)}] = fmt.Sprintf("%s:%d", p.Endpoint, p.Ports.First+uint16(i))
		}
	}
	return own
}

// ledger knows who may answer on which port at the moment. It is safe for
// concurrent use.
type ledger struct {
	mu sync.Mutex
	// may lists, for each port that ever had an owner, who may answer: more
	// than one while a change is under way.
	may     map[at][]string
	windows map[*window]bool
}

// window is a stretch of time for which it is noted who may answer on a port.
type window struct {
	at  at
	may []string
}

func newLedger() *ledger { return &ledger{may: map[at][]string{}, windows: map[*window]bool{}} }

// begin notes that the owners are about to become those.
func (l *ledger) begin(own map[at]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for port, name := range own {
		if l.may[port] == nil {
			l.may[port] = []string{nobody}
		}
		l.add(port, name)
	}
	for port := range l.may {
		if own[port] == "" {
			l.add(port, nobody)
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

// end notes that the owners are those, and nobody else any more.
func (l *ledger) end(own map[at]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for port := range l.may {
		l.may[port] = []string{nobody}
		if own[port] != "" {
			l.may[port] = []string{own[port]}
		}
	}
}

// open begins to note who may answer on a port, and says how long to wait.
func (l *ledger) open(port at) (w *window, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w = &window{at: port, may: l.may[port]}
	if len(w.may) == 0 {
		w.may = []string{nobody}
	}
	l.windows[w] = true
	if len(w.may) == 1 && w.may[0] == nobody {
		return w, vain
	}
	return w, patience
}

// close ends that, and judges what was answered meanwhile.
func (l *ledger) close(w *window, answer string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.windows, w)
	changed := len(w.may) > 1
	switch {
	case err == nil && !slices.Contains(w.may, answer):
		return fmt.Errorf("%s %d: answered by %q, while only %q may", w.at.proto, w.at.port, answer, w.may)
	case err != nil && !changed && w.may[0] != nobody:
		return fmt.Errorf("%s %d: not answered by %s: %w", w.at.proto, w.at.port, w.may[0], err)
	}
	return nil
}
