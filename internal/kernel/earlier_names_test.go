package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/plan"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestPinsOfAnEarlierVersion adopts what a version left whose programs and maps
// had other names: the mappings still work, and no pin of that version is left.
func TestPinsOfAnEarlierVersion(t *testing.T) {
	w := newLocalWorld(t)
	if err := w.Del(plan.LocalClients{}); err != nil {
		t.Fatal(err)
	}
	pins, open := w.pinned(t)
	h := open()
	(&localWorld{h, w.box}).mapping(t, false, toBox("0.0.0.0", 80, "10.9.0.2")...)
	for _, o := range (plan.Plan{plan.LocalClients{}, plan.Uplinks{}, boxIngress}) {
		if err := h.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(pins, "*", "*", "fl_*"))
	if err != nil || len(all) < 30 {
		t.Fatalf("pins: %q, %v", all, err)
	}
	earlier := map[string]string{"mappings": "leads", "icmp_rate": "news_paid", "next_hops": "hops",
		"wl_dialled": "own_dialled",
		"xdp_links":  "fast_links", "xdp_packets": "fast_packets", "getpeer4-root": "getpeername4-root",
		"getpeer6-root": "getpeername6-root"}
	for _, pin := range all {
		name := strings.TrimPrefix(filepath.Base(pin), "fl_")
		if old, ok := earlier[name]; ok {
			name = old
		}
		if err := os.Rename(pin, filepath.Join(filepath.Dir(pin), name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := open().Set(plan.Uplinks{}); err != nil {
		t.Fatal(err)
	}
	c := dialer(t, w.ns, unix.SOCK_STREAM, "10.9.0.1:80")
	if err := c.connect("10.9.0.1:80"); err != nil {
		t.Fatal(err)
	}
	if said, _ := c.answer(t); said != "10.9.0.2:8080" {
		t.Errorf("reached %q", said)
	}
	now, err := filepath.Glob(filepath.Join(pins, "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, now); diff != "" {
		t.Errorf("pins (- wanted, + found):\n%s", diff)
	}
}
