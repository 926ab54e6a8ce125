package serving

import "time"

// beatEvery is the interval in which the serving process reports progress.
const beatEvery = answerLimit / 6

// answerLimit limits the time until a serving process answers a request, or reports progress.
const answerLimit = 30 * time.Second

// beat calls send at each tick at which the progress has grown, until it ends or send fails.
func beat(ticks <-chan time.Time, ended <-chan struct{}, progress func() uint64, send func() error) {
	last := progress()
	for {
		select {
		case <-ended:
			return
		case <-ticks:
		}
		if now := progress(); now != last {
			if last = now; send() != nil {
				return // the answer fails, too
			}
		}
	}
}
