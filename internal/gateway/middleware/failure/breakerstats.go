package failure

import (
	"math/bits"
	"net/http"
	"time"
)

const (
	// slots are the seconds of statistics that a circuit breaker has.
	slots = 10
	// latencyBuckets cover an hour in milliseconds with an error of 1/16.
	latencyBuckets = 16 * 20
)

// breakerStats has the responses of the last seconds.
type breakerStats struct {
	slot [slots]breakerSlot
	// second is the time of the newest slot, in seconds.
	second int64
}

// breakerSlot has the responses of one second.
type breakerSlot struct {
	total, network int
	status         [600]uint32
	latency        [latencyBuckets]uint32
}

func (s *breakerStats) reset() { *s = breakerStats{second: s.second} }

// add counts a response. A network error is a 502 or 504 of the proxy.
func (s *breakerStats) add(now time.Time, status int, latency time.Duration) {
	second := now.Unix()
	if second-s.second >= slots {
		*s = breakerStats{second: second}
	}
	for s.second < second {
		s.second++
		s.slot[s.second%slots] = breakerSlot{}
	}
	slot := &s.slot[s.second%slots]
	slot.total++
	if status == http.StatusBadGateway || status == http.StatusGatewayTimeout {
		slot.network++
	}
	if status >= 0 && status < len(slot.status) {
		slot.status[status]++
	}
	slot.latency[latencyBucket(latency.Milliseconds())]++
}

// latencyBucket returns the bucket of a latency: linear up to 32 ms, then 16 buckets for
// each power of two.
func latencyBucket(ms int64) int {
	if ms < 32 {
		return int(max(0, ms))
	}
	shift := bits.Len64(uint64(ms)) - 5
	return min(latencyBuckets-1, 16*shift+int(ms>>shift))
}

// bucketLatency returns the highest latency of a bucket, in milliseconds.
func bucketLatency(bucket int) float64 {
	if bucket < 32 {
		return float64(bucket)
	}
	shift := bucket/16 - 1
	return float64((int64(bucket%16+16)+1)<<shift - 1)
}

func (s *breakerStats) networkErrorRatio() float64 {
	network, total := 0, 0
	for i := range s.slot {
		network += s.slot[i].network
		total += s.slot[i].total
	}
	return ratio(network, total)
}

// statusRatio returns the responses with a status in [from, to) per those with a status
// in [ofFrom, ofTo).
func (s *breakerStats) statusRatio(from, to, ofFrom, ofTo float64) float64 {
	part, total := 0, 0
	for i := range s.slot {
		for status, count := range s.slot[i].status {
			if value := float64(status); value >= from && value < to {
				part += int(count)
			}
			if value := float64(status); value >= ofFrom && value < ofTo {
				total += int(count)
			}
		}
	}
	return ratio(part, total)
}

func ratio(part, total int) float64 {
	if total == 0 {
		return 0
	}
	return float64(part) / float64(total)
}

// latency returns the latency at a quantile in percent, in milliseconds.
func (s *breakerStats) latency(quantile float64) float64 {
	total := 0
	for i := range s.slot {
		total += s.slot[i].total
	}
	below, last := 0, 0
	for bucket := range latencyBuckets {
		for i := range s.slot {
			if n := int(s.slot[i].latency[bucket]); n > 0 {
				below, last = below+n, bucket
			}
		}
		if below > 0 && float64(below) >= quantile/100*float64(total) {
			break
		}
	}
	return bucketLatency(last)
}
