package hold

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/vip"
)

// TestDamagedMemory flips each bit of what the next process must know. It is not believed.
func TestDamagedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "addresses.json")
	r, err := New(Config{Log: slog.New(slog.DiscardHandler), Memory: path})
	if err != nil {
		t.Fatal(err)
	}
	r.self = member.Self{Node: "node"}
	want := map[netip.Addr]*vip.Memory{netip.MustParseAddr("192.0.2.10"): {Epoch: 1234,
		Listed: []string{"node", "other"}}}
	if err := r.write(memories{"node", want}); err != nil {
		t.Fatal(err)
	}
	if is := r.recall(); !reflect.DeepEqual(is, want) {
		t.Fatalf("recalled: %+v", is)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(sound) {
		text := bytes.Clone(sound)
		text[i/8] ^= 1 << (i % 8)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if is := r.recall(); is != nil {
			t.Errorf("bit %d: %+v", i, is)
		}
	}
}
