package wrr

import "sync/atomic"

// mostTurns limits the memory of Turns.
const mostTurns = 4096

// Turns takes the turns of a ring one after the other. Its methods may be called concurrently.
type Turns struct {
	ring []uint16
	n    *atomic.Uint64
}

// NewTurns returns the turns of indexes with these weights. n counts the turns: turns that
// replace others go on with their count, so that no index gets the first turn again and again.
func NewTurns(weights []int, n *atomic.Uint64) *Turns { return &Turns{Ring(weights, mostTurns), n} }

// Ring returns one cycle of the turns. It is empty if no index has a weight.
func (t *Turns) Ring() []uint16 { return t.ring }

// Next returns the index whose turn it is. The ring must not be empty.
func (t *Turns) Next() int { return int(t.ring[t.n.Add(1)%uint64(len(t.ring))]) }
