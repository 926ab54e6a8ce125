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
