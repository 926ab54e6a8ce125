package member_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/cluster/member"
	"fairlead/test/damage"
)

// TestDamagedFile damages the membership in random ways. Either it is what was stored, or the error names the file
// and its copy, and the file stays as it is.
func TestDamagedFile(t *testing.T) {
	one := newWorld(t).host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	want, err := member.StoredMembership(one.dir)
	if err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(filepath.Join(one.dir, "member.json"))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(filepath.Join(one.dir, "member.json.copy"))
	if err != nil || !bytes.Equal(copied, sound) {
		t.Fatalf("the copy differs: %v", err)
	}
	count := 300
	if text := os.Getenv("FAIRLEAD_DAMAGES"); text != "" {
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(one.dir, "member.json")
	for round := range count {
		text := damage.Text(random, sound)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		is, err := member.StoredMembership(one.dir)
		if err == nil && !reflect.DeepEqual(is, want) {
			t.Errorf("round %d: %+v, want %+v", round, is, want)
		}
		if err != nil && (!strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "member.json.copy")) {
			t.Errorf("round %d: %v", round, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
			t.Errorf("round %d: the file was changed: %v", round, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := member.StoredMembership(one.dir); err == nil {
		t.Error("a file of which only the copy exists is not missed")
	}
	if err := os.WriteFile(path, copied, 0o600); err != nil {
		t.Fatal(err)
	}
	if is, err := member.StoredMembership(one.dir); err != nil || !reflect.DeepEqual(is, want) {
		t.Errorf("the copy has %+v, %v", is, err)
	}
}

// TestMembershipOfEarlierVersion: a file without a checksum is read, and gets one and a copy.
func TestMembershipOfEarlierVersion(t *testing.T) {
	one := newWorld(t).host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	want, err := member.StoredMembership(one.dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "member.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := member.New(member.Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(path)
	copied, errCopy := os.ReadFile(path + ".copy")
	if errors.Join(err, errCopy) != nil || !bytes.Equal(now, copied) || !bytes.Contains(now, []byte(`,"sum":"`)) {
		t.Errorf("the file is %s, its copy %s", now, copied)
	}
	if is, err := member.StoredMembership(dir); err != nil || !reflect.DeepEqual(is, want) {
		t.Errorf("the file has %+v, %v", is, err)
	}
}

// TestMembershipWithoutCopy: a copy that cannot be written is a problem of the host, and keeps it from nothing.
// The problem ends when the copy can be written.
func TestMembershipWithoutCopy(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.stop()
	copied := filepath.Join(one.dir, "member.json.copy")
	if err := os.Remove(copied); err != nil {
		t.Fatal(err)
	}
	full := copied + ".new" // a directory with a file cannot be replaced
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	one.start()
	const problem = "copy the cluster's membership: "
	const here, there = "https://198.51.100.1:2379", "https://198.51.100.2:2379"
	w.mu.Lock()
	w.elsewhere[here], w.elsewhere[there] = w.store, w.store
	w.mu.Unlock()
	one.shows("host1", problem)
	if err := one.SetEtcd(t.Context(), api.EtcdAccess{Endpoints: []string{here}}); err != nil {
		t.Errorf("change the membership without a copy: %v", err)
	}
	if err := two.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Fatal(err)
	}
	two.shows("host1", problem)
	if err := os.RemoveAll(full); err != nil {
		t.Fatal(err)
	}
	if err := one.SetEtcd(t.Context(), api.EtcdAccess{Endpoints: []string{there}}); err != nil {
		t.Fatal(err)
	}
	two.until("host1 has no problem", func() bool {
		s, err := two.Status(t.Context())
		return err == nil && !strings.Contains(strings.Join(s.Nodes[0].Problems, ""), problem)
	})
}

// TestLeaveWithoutCopy leaves a cluster while the copy of the membership cannot be written, and while an earlier one
// cannot be deleted.
func TestLeaveWithoutCopy(t *testing.T) {
	one := newWorld(t).host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(one.dir, "member.json.copy")
	if err := os.Remove(copied); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(copied, "x"), 0o700); err != nil { // it cannot be deleted
		t.Fatal(err)
	}
	_, err := one.Leave(t.Context(), api.ClusterNodeRequest{})
	if err == nil || !strings.Contains(err.Error(), "delete the copy of the cluster's membership") {
		t.Errorf("leave with an earlier copy: %v", err)
	}
	if err := os.Rename(copied, copied+".new"); err != nil { // it cannot be written
		t.Fatal(err)
	}
	if _, err := one.Leave(t.Context(), api.ClusterNodeRequest{Force: true}); err != nil {
		t.Errorf("leave without a copy: %v", err)
	}
	if _, err := os.Stat(one.dir); !os.IsNotExist(err) {
		t.Errorf("the directory after the host has left: %v", err)
	}
}
