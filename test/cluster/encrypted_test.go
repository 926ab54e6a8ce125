package cluster_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/plan"
	"fairlead/test/features"
	"fairlead/test/place"
)

// keyAge is the age of a key that a host replaces.
const keyAge = 31 * 24 * time.Hour

// TestEncryptedNetwork needs WireGuard, which test/vm has. On a kernel without it, no host must have the network,
// and the status of the cluster must say why.
func TestEncryptedNetwork(t *testing.T) {
	facts := features.Facts(t)
	l := newLAN(t)
	l.joined()
	l.hosts[0].Run("network", "create", "shop", "--cluster", "--driver", "vxlan", "--encrypt", "--subnet",
		"10.9.0.0/16")
	if missing, lacks := facts.Missing[plan.FeatureWireGuard]; lacks {
		l.until("the status says what the hosts lack", func() bool {
			all, _ := l.hosts[0].Try("cluster", "status")
			return strings.Contains(all, "problem on host1, host2, host3: network shop: encrypt: "+missing)
		})
		for _, h := range l.hosts {
			if h.has() {
				t.Errorf("%s has the network", h.name)
			}
		}
		return
	}
	var boxes []box
	for _, h := range l.hosts {
		l.until(h.name+" has the network", h.has)
		boxes = append(boxes, l.box(h))
	}
	// The addresses of a packet from one sandbox to another, as its header has them.
	packet := string(append(boxes[0].addr.AsSlice(), boxes[1].addr.AsSlice()...))
	wire := place.Watch(t, l.between.Do, packet)
	for _, from := range boxes {
		for _, to := range boxes {
			l.reaches(from, to)
		}
	}
	streams := []*stream{l.stream("tcp", boxes[0], boxes[1]), l.stream("udp", boxes[1], boxes[2])}
	l.replacesKey(l.hosts[1])
	for _, s := range streams {
		s.continues(20)
		s.end()
	}
	l.reaches(boxes[2], boxes[1])
	t.Logf("the hosts have exchanged %d packets of WireGuard", wire.WireGuard.Load())
	if wire.Plain.Load() > 0 || wire.Tunnel.Load() > 0 || wire.WireGuard.Load() < 100 {
		t.Errorf("the wire carried %d packets in plain text, %d of VXLAN, %d of WireGuard", wire.Plain.Load(),
			wire.Tunnel.Load(), wire.WireGuard.Load())
	}
}

// replacesKey makes the key of a host in network shop old, and waits until the host has replaced it.
func (l *lan) replacesKey(h *host) {
	l.Helper()
	file := filepath.Join(h.State, "cluster/keys/shop.key")
	before, err := os.ReadFile(file)
	if err != nil {
		l.Fatal(err)
	}
	then := time.Now().Add(-keyAge)
	if err := os.Chtimes(file, then, then); err != nil {
		l.Fatal(err)
	}
	l.until(h.name+" has replaced its key", func() bool {
		now, err := os.ReadFile(file)
		_, next := os.Stat(strings.TrimSuffix(file, ".key") + ".next")
		return err == nil && !bytes.Equal(now, before) && errors.Is(next, fs.ErrNotExist)
	})
}
