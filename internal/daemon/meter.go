package daemon

import "time"

// Meter records what the daemon does to the host. Its methods must return at once, and
// may be called concurrently.
type Meter interface {
	// Applied records how long it took to apply the desired state, and its error.
	Applied(took time.Duration, err error)
	// Healed records that n objects of one kind (e.g. "link", "nft element") differed
	// and were repaired.
	Healed(kind string, n int)
}

// noMeter is used if Config.Meter is nil.
type noMeter struct{}

func (noMeter) Applied(time.Duration, error) {}
func (noMeter) Healed(string, int)           {}
