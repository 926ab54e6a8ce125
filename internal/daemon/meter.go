package daemon

import "time"

// Meter is told what the daemon does to the host, as it does it. Its methods
// return at once and may be called concurrently.
type Meter interface {
	// Applied tells how long it took to bring the host to what is wished for,
	// and how that ended.
	Applied(took time.Duration, err error)
	// Healed tells that n objects of one kind (e.g. "link", "nft element") had
	// strayed and were put right.
	Healed(kind string, n int)
}

// unmetered is for a daemon that nobody measures.
type unmetered struct{}

func (unmetered) Applied(time.Duration, error) {}
func (unmetered) Healed(string, int)           {}
