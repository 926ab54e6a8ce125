package networks_test

import (
	"crypto/ecdh"
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// rotating is a cluster of two nodes with encrypted network web. The first one's key is old.
func rotating(t *testing.T, test func(w *world, first string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		n := model.Network{Name: "web", Driver: model.DriverVXLAN, Overlay: model.Overlay{Encrypt: true},
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}
		if err := block.Create(w.Context(), w.Client(), w.Snapshot(), n, nil); err != nil {
			t.Fatal(err)
		}
		w.settle()
		for _, dir := range w.keys {
			w.setTime(filepath.Join(dir, "web.key"), time.Now()) // of the bubble's clock
		}
		w.setTime(w.file("web.key"), time.Now().Add(-keyAge))
		test(w, w.peers(0)[0])
	})
}

// file returns the path of a file of the first node's keys.
func (w *world) file(name string) string { return filepath.Join(w.keys[0], name) }

func (w *world) setTime(file string, at time.Time) {
	w.Helper()
	if err := os.Chtimes(file, at, at); err != nil {
		w.Fatal(err)
	}
}

// public returns the public key of a file's private key, or an empty string.
func public(file string) string {
	text, _ := os.ReadFile(file)
	secret, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	private, err := ecdh.X25519().NewPrivateKey(secret)
	if err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(private.PublicKey().Bytes())
}

// key returns the record of the first node's key.
func (w *world) key() record.NodeKey {
	w.Helper()
	k, _, err := record.Get[record.NodeKey](w.Snapshot(), "keys/web/n0")
	if err != nil {
		w.Fatal(err)
	}
	return k
}

// alive makes both nodes alive.
func (w *world) alive() {
	for _, id := range []string{"n0", "n1"} {
		w.put(w.clients[0], record.Key(record.Alives, id), record.Alive{})
	}
}

// replaced fails the test unless both hosts and the files have another key than the first.
func (w *world) replaced(first string) {
	w.Helper()
	now := w.key().Public
	all := w.hosts[0].Networks()
	if now == first || w.key().Next != "" || !slices.Equal(w.peers(0), w.peers(1)) || w.peers(0)[0] != now ||
		public(w.file("web.key")) != now || all[0].Overlay.KeyFile != w.file("web.key") {
		w.Errorf("the key was %s; the record is %+v, the hosts have %v and %v, the file is %s", first, w.key(),
			w.peers(0), w.peers(1), all[0].Overlay.KeyFile)
	}
	info, err := os.Stat(w.file("web.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		w.Errorf("the private key: %v, mode %v", err, info)
	}
	if left, _ := os.ReadDir(w.keys[0]); len(left) != 1 {
		w.Errorf("a replaced key leaves %v", left)
	}
}

// TestOldKeyIsReplaced waits until all nodes are alive. The host gets its new key before others know of it, and
// always with the file that has it.
func TestOldKeyIsReplaced(t *testing.T) {
	rotating(t, func(w *world, first string) {
		w.settle()
		if k := w.key(); k.Public != first || k.Next == "" || w.peers(0)[0] != first {
			t.Errorf("before all nodes are alive the record is %+v", k)
		}
		alone := false
		w.hosts[0].seen = func(networks []model.Network) {
			own := networks[0].Overlay.Peers[0].PublicKey
			if is := public(networks[0].Overlay.KeyFile); is != own {
				t.Errorf("the host gets the key %s with a file of %s", own, is)
			}
			alone = alone || own != first && w.key().Public == first
		}
		w.alive()
		w.settle()
		w.replaced(first)
		if !alone {
			t.Error("the other node had the next key before this host")
		}
		info, err := os.Stat(w.file("web.key"))
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(info.ModTime()); age < 0 || age > time.Minute {
			t.Errorf("the new key has the age %v", age)
		}
		w.hosts[0].seen = nil
		second := w.key().Public
		w.settle()
		if w.replaced(first); w.key().Public != second {
			t.Error("a new key is replaced at once")
		}
	})
}

// TestKeyIsReplacedWithoutStore loses the store when the host has its next key: it gets the earlier one back.
// If the store has committed the next key, the host gets it as soon as the store answers again.
func TestKeyIsReplacedWithoutStore(t *testing.T) {
	for _, fault := range []kvtest.Fault{kvtest.Refused, kvtest.RequestLost, kvtest.AnswerLost} {
		rotating(t, func(w *world, first string) {
			w.hosts[0].seen = func(networks []model.Network) {
				if networks[0].Overlay.Peers[0].PublicKey != first {
					w.clients[0].Set(fault)
				}
			}
			w.alive()
			w.settle()
			time.Sleep(time.Minute)
			synctest.Wait()
			if own := w.peers(0)[0]; own != first || own != public(w.hosts[0].Networks()[0].Overlay.KeyFile) {
				t.Errorf("without the store the host has the key %s, the record %+v", own, w.key())
			}
			w.hosts[0].seen = nil
			w.clients[0].Set(kvtest.Works)
			time.Sleep(15 * time.Minute)
			w.settle()
			w.replaced(first)
		})
	}
}

// TestKeyIsReplacedBeforeSnapshot delays the snapshot with the next key. The host must keep the key: the other nodes
// have it already.
func TestKeyIsReplacedBeforeSnapshot(t *testing.T) {
	rotating(t, func(w *world, first string) {
		late := make(chan struct{})
		w.hosts[0].seen = func(networks []model.Network) {
			if networks[0].Overlay.Peers[0].PublicKey != first {
				w.hosts[0].late = late // SetCluster has the mutex
			}
		}
		w.alive()
		w.settle()
		if own := w.peers(0)[0]; own == first || own != w.key().Public || own != w.peers(1)[0] {
			t.Errorf("before the snapshot the host has the key %s, and others %s; it was %s", own, w.peers(1)[0], first)
		}
		w.hosts[0].mu.Lock()
		w.hosts[0].seen, w.hosts[0].late = nil, nil
		w.hosts[0].mu.Unlock()
		close(late)
		w.settle()
		w.replaced(first)
	})
}

// TestRepeatedFailureIsReported lets several attempts to replace a key fail because the store does not answer in time.
func TestRepeatedFailureIsReported(t *testing.T) {
	rotating(t, func(w *world, first string) {
		w.hosts[0].seen = func(networks []model.Network) {
			w.clients[0].Set(kvtest.Works)
			if networks[0].Overlay.Peers[0].PublicKey != first {
				w.clients[0].Set(kvtest.Refused)
			}
		}
		w.alive()
		w.settle()
		if problems := w.problems(); len(problems) > 0 {
			t.Errorf("after the first attempt the problems are %q", problems)
		}
		time.Sleep(15 * time.Minute)
		w.settle()
		if problems := strings.Join(w.problems(), " "); !strings.Contains(problems, "2 attempts have failed") {
			t.Errorf("after the second attempt the problems are %q", problems)
		}
		w.hosts[0].seen = nil
		time.Sleep(15 * time.Minute)
		w.settle()
		w.replaced(first)
		if problems := w.problems(); len(problems) > 0 {
			t.Errorf("after the last attempt the problems are %q", problems)
		}
	})
}

// problems returns those of the first node.
func (w *world) problems() []string {
	s := w.Snapshot()
	return w.every[0].Update(w.Context(), member.Self{Node: "n0"}, kv.Update{Snapshot: s})
}

// TestKilledWhileKeyIsReplaced starts a daemon after an earlier one was killed at each step.
func TestKilledWhileKeyIsReplaced(t *testing.T) {
	for name, killed := range map[string]func(w *world, next string){
		"the next key was published": func(*world, string) {},
		"the next key is that of the record": func(w *world, next string) {
			w.put(w.clients[0], "keys/web/n0", record.NodeKey{Public: next})
		},
		"the file was linked": func(w *world, next string) {
			w.put(w.clients[0], "keys/web/n0", record.NodeKey{Public: next})
			if err := os.Link(w.file("web.next"), w.file("web.key.new")); err != nil {
				t.Fatal(err)
			}
		},
		"the file was replaced": func(w *world, next string) {
			w.put(w.clients[0], "keys/web/n0", record.NodeKey{Public: next})
			if err := os.Remove(w.file("web.key")); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(w.file("web.next"), w.file("web.key")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rotating(t, func(w *world, first string) {
				w.settle()
				w.stop[0]()
				synctest.Wait()
				killed(w, w.key().Next)
				w.alive()
				w.start(0)
				w.settle()
				w.replaced(first)
			})
		})
	}
}
