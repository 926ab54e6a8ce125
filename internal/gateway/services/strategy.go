package services

import (
	"errors"
	"hash/fnv"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"fairlead/internal/balance/wrr"
	"fairlead/internal/gateway/condition"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/sticky"
	"fairlead/internal/model/gateway"
)

// byTurn takes the server whose turn it is, or the next one that is up.
func (b *balancer) byTurn(*http.Request) *place {
	for range b.turns.Ring() {
		p := b.places[b.turns.Next()]
		if p.IsUp() {
			return p
		}
	}
	return nil
}

// lessLoaded takes that one of two random servers with fewer pending requests.
func (b *balancer) lessLoaded(*http.Request) *place {
	up := b.usable()
	if len(up) < 2 {
		return first(up)
	}
	i := rand.IntN(len(up))
	j := (i + 1 + rand.IntN(len(up)-1)) % len(up)
	if up[j].pending.Load() < up[i].pending.Load() {
		return up[j]
	}
	return up[i]
}

// byAddress takes the server with the highest weighted hash of the client's address
// (rendezvous hashing), so a client keeps its server while others come and go.
func (b *balancer) byAddress(r *http.Request) *place {
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	var best *place
	most := math.Inf(-1)
	for _, p := range b.usable() {
		if score := score(client, p.key, p.weight); score > most {
			best, most = p, score
		}
	}
	return best
}

// byTime takes the server with the shortest expected time: the average time until a
// response begins, times the requests that wait, divided by the weight (Traefik 3.7,
// strategy leasttime). Servers with equal times take turns.
func (b *balancer) byTime(*http.Request) *place {
	up := b.usable()
	if len(up) == 0 {
		return nil
	}
	now := time.Now()
	var best *place
	least := 0.0
	start := b.turns.Next() // there is one: a server that is usable has a weight
	for i := range up {
		p := up[(start+i)%len(up)]
		score := float64(p.pace.At(now)) * float64(1+p.pending.Load()) / float64(p.weight)
		if best == nil || score < least {
			best, least = p, score
		}
	}
	return best
}

// score returns the weighted hash of a client and a server or service.
func score(client, key string, weight int) float64 {
	h := fnv.New64a()
	h.Write([]byte(client))
	h.Write([]byte(key))
	share := (float64(h.Sum64()>>11) + 1) / (1 << 53)
	return -float64(weight) / math.Log(share)
}

func first(places []*place) *place {
	if len(places) == 0 {
		return nil
	}
	return places[0]
}

func newBalancer(service string, value *gateway.LoadBalancer, places []*place, turns *atomic.Uint64, open *metric.Open,
	log *slog.Logger) (*balancer, error) {
	b := &balancer{service: service, places: places, passHost: value.PassHostHeader == nil || *value.PassHostHeader,
		cookie: sticky.Cookie(service, value.Sticky), passive: condition.NewPassive(value.PassiveHealthCheck),
		open: open, log: log}
	b.watches = b.passive != nil || value.Strategy == "leasttime"
	weights := make([]int, len(places))
	for i, p := range places {
		if weights[i] = p.weight; p.fenced {
			weights[i] = 0
		}
	}
	b.turns = wrr.NewTurns(weights, turns)
	switch value.Strategy {
	case "", "wrr":
		b.next = b.byTurn
	case "p2c":
		b.next = b.lessLoaded
	case "hrw":
		b.next = b.byAddress
	case "leasttime":
		b.next = b.byTime
	default:
		return nil, errors.New("strategy " + strconv.Quote(value.Strategy) + ": want wrr, p2c, hrw or leasttime")
	}
	return b, nil
}
