package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead/internal/model"
	"fairlead/test/place"
)

// The time between short connections, and how many may be open at the same time.
const (
	newcomerPause = 20 * time.Millisecond
	newcomersMax  = 64
)

// newcomers are short connections, with one request each, to the ports whose publishes change.
type newcomers struct {
	world  *world
	ledger *ledger
	wrongs wrongs

	answered, unanswered, now atomic.Int64
}

// run opens short connections until the context ends.
func (n *newcomers) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	from := n.world.vantages()
	for ctx.Err() == nil {
		time.Sleep(newcomerPause)
		if n.now.Load() >= newcomersMax {
			continue
		}
		v := from[rand.IntN(len(from))]
		host := v.hosts[rand.IntN(len(v.hosts))]
		n.now.Add(1)
		all.Go(func() {
			defer n.now.Add(-1)
			n.come(v, host, anyPort())
		})
	}
}

// anyPort returns a port of an item, which may currently be outside the item's range.
func anyPort() at {
	all := items()
	i := all[rand.IntN(len(all))]
	if !i.ranged {
		return at{i.proto, i.port}
	}
	return at{i.proto, i.port + uint16(rand.IntN(widest))}
}

// come sends one request, and compares the answer with the ledger.
func (n *newcomers) come(v vantage, host netip.Addr, port at) {
	w, wait := n.ledger.open(port)
	name, err := once(v.place, port.proto, netip.AddrPortFrom(host, port.port), wait)
	if wrong := n.ledger.close(w, name, err); wrong != nil {
		n.wrongs.note(fmt.Errorf("short connection from %s to %s: %w", v.name, host, wrong))
	}
	if err != nil {
		n.unanswered.Add(1)
		return
	}
	n.answered.Add(1)
}

// once opens a conversation, sends one request and closes it.
func once(from place.Place, proto model.Proto, to netip.AddrPort, wait time.Duration) (name string, err error) {
	conn, err := place.Dial(from, string(proto), to.String(), wait)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return ask(conn, "hello", wait)
}
