package e2e_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDamagedState damages the files of a daemon that was stopped. It refuses to start, commands without a daemon
// refuse too, and nothing changes on the host. `fairlead restore` then restores all.
func TestDamagedState(t *testing.T) {
	r := newRoom(t)
	r.sh("ip netns add box")
	r.succeed("network", "create", "web", "--subnet", "172.30.0.0/24")
	r.succeed("attach", "web", "box", "--keep")
	r.succeed("publish", "box", "8080:80", "--via", "ebpf")
	r.succeed("publish", "box", "8081:80", "--via", "nat")
	r.stopDaemon()
	before := r.snapshot().Host
	if text := strings.Join(before, "\n"); !strings.Contains(text, "8081") || !strings.Contains(text, "172.30.0.1/24") {
		t.Fatalf("the network or the publish is not on the host:\n%s", text)
	}
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range e2eDamages(t) {
		name := []string{"state/fairlead.db", "run/boot.db"}[random.IntN(2)]
		sound := r.read(name)
		r.write(name, damaged(random, sound))
		o := r.run("network", "create", "web", "--subnet", "172.30.0.0/24")
		if o.code == 0 { // the damage is in a free page, or in an unused part of a page
			r.stopDaemon()
			continue
		}
		refused++
		for _, words := range []string{r.file(name), "fairlead restore --state-dir"} {
			o.expect(t, 1, []string{words})
			r.run("ls").expect(t, 1, []string{words})
		}
		if now := r.snapshot().Host; !slices.Equal(now, before) {
			t.Errorf("the host has changed:\nwas %q\nis  %q", before, now)
		}
		if name == "state/fairlead.db" {
			r.write(name, sound)
		} else {
			r.restoreState(name)
		}
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
	r.sh("mkdir -p " + r.file("state/cluster"))
	r.write("state/cluster/member.json", []byte("damaged"))
	r.run("network", "create", "web", "--subnet", "172.30.0.0/24").expect(t, 1, []string{"member.json", "join again"})
	if now := r.snapshot().Host; !slices.Equal(now, before) {
		t.Errorf("the host has changed:\nwas %q\nis  %q", before, now)
	}
	r.sh("rm -r " + r.file("state/cluster"))
	r.write("state/fairlead.db", []byte("damaged"))
	r.restoreState("state/fairlead.db")
	r.succeed("network", "create", "web", "--subnet", "172.30.0.0/24")
	if list := r.succeed("ls"); !strings.Contains(list, "8080") || !strings.Contains(list, "8081") {
		t.Errorf("after the restore:\n%s", list)
	}
	r.succeed("detach", "box")
	r.succeed("network", "rm", "web")
}

// restoreState restores the files of the daemon, of which one is damaged.
func (r *room) restoreState(name string) {
	r.t.Helper()
	damaged := r.read(name)
	dirs := []string{"--state-dir", r.file("state"), "--run-dir", r.file("run")}
	text := r.succeed(append([]string{"restore", "--dry-run"}, dirs...)...)
	if !strings.Contains(text, r.file(name)+": ") || !bytes.Equal(r.read(name), damaged) {
		r.t.Errorf("restore --dry-run changes the file, or says %s", text)
	}
	text = r.succeed(append([]string{"restore"}, dirs...)...)
	_, kept, _ := strings.Cut(text, "the damaged file is now ")
	kept, _, _ = strings.Cut(kept, "\n")
	if is, err := os.ReadFile(kept); err != nil || !bytes.Equal(is, damaged) {
		r.t.Errorf("the damaged file is not kept: %v:\n%s", err, text)
	}
}

// stopDaemon stops the daemon that runs in the background.
func (r *room) stopDaemon() {
	r.t.Helper()
	r.sh(fmt.Sprintf("pid=%s; kill $pid; while kill -0 $pid 2>/dev/null; do :; done", r.read("run/pid")))
}

// e2eDamages returns how often the test damages a file.
func e2eDamages(t *testing.T) int {
	const short, most = 4, 60
	text := os.Getenv("FAIRLEAD_DAMAGES")
	if text == "" {
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return min(n, most)
}

// damaged returns a copy with a flipped bit, a page of zeros, or fewer pages.
func damaged(random *rand.Rand, sound []byte) []byte {
	text := bytes.Clone(sound)
	page := random.IntN(len(text)/os.Getpagesize()) * os.Getpagesize()
	switch random.IntN(3) {
	case 0:
		text[page+random.IntN(200)] ^= 1 << random.IntN(8)
	case 1:
		clear(text[page : page+os.Getpagesize()])
	case 2:
		text = text[:page]
	}
	return text
}
