package plan

import (
	"fmt"

	"fairlead/internal/escape"
)

// Shaper limits the rate at which packets leave through a link, with a token bucket
// (tc-tbf(8)) at the link's root.
type Shaper struct {
	Netns string
	Link  string
	// Rate is in bits per second.
	Rate uint64
}

// The token bucket's sizes. The burst is 5 ms, so that the kernel's timer need not
// be finer, but at least one large segment with its headers, because the kernel
// drops packets that are larger than the burst. ShaperLatency is the maximum time
// that a packet waits in the queue.
const (
	ShaperBurst    = 5        // ms
	ShaperMinBurst = 80 << 10 // bytes
	ShaperLatency  = 50       // ms
)

// Burst returns the size of the bucket in bytes.
func (s Shaper) Burst() uint64 { return max(s.Rate/8*ShaperBurst/1000, ShaperMinBurst) }

// Key implements Object.
func (s Shaper) Key() string { return keyed("shaper", s.Netns, s.Link) }

func (s Shaper) netns() string { return s.Netns }

// Add implements Object.
func (s Shaper) Add() []string {
	return []string{fmt.Sprintf("%s qdisc replace dev %s root handle %s: tbf rate %dbit burst %d latency %dms",
		in(s.Netns, "tc"), escape.Shell(s.Link), ShaperHandle, s.Rate, s.Burst(), ShaperLatency)}
}

// ShaperHandle marks a queueing discipline as Fairlead's, as RouteProtocol marks a
// route.
const ShaperHandle = "fa1e"

// Del implements Object.
func (s Shaper) Del() []string {
	return []string{fmt.Sprintf("%s qdisc del dev %s root", in(s.Netns, "tc"), escape.Shell(s.Link))}
}

func (s Shaper) base() string { return end(s.Netns, s.Link) }
