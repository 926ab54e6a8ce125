package acme

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"fairlead/test/damage"

	"github.com/caddyserver/certmagic"
)

// fill stores an account, an attempt and three certificates, and returns all values by their keys.
func fill(t *testing.T, s certmagic.Storage) map[string]string {
	t.Helper()
	all := map[string]string{"le/account": `{"Email":"a@shop.test","PrivateKey":"` + strings.Repeat("QUJD", 200) + `"}`,
		"le/attempts/x": `{"failed":"<never>"}`}
	for i := range 3 {
		c := stored{Domain: storedDomain{Main: fmt.Sprintf("shop%d.test", i)},
			Certificate: bytes.Repeat([]byte{byte(i)}, 900), Key: bytes.Repeat([]byte{7}, 200), Store: "default"}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		all["le/certificates/"+c.id()] = string(text)
	}
	for key, value := range all {
		if err := s.Store(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// content returns the values of a storage by their keys, without spaces.
func content(t *testing.T, s certmagic.Storage, keys map[string]string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for key := range keys {
		text, err := s.Load(t.Context(), key)
		if err != nil {
			continue
		}
		if text, err = json.Marshal(json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		all[key] = string(text)
	}
	return all
}

// TestDamagedStorage damages acme.json in random ways. Either it has what was stored, or it is refused with its
// name, and stays as it is.
func TestDamagedStorage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acme.json")
	s, err := openStorage(path)
	if err != nil {
		t.Fatal(err)
	}
	keys := fill(t, s)
	want := content(t, s, keys)
	if len(want) != 5 {
		t.Fatalf("stored: %v", want)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	count := 300
	if text := os.Getenv("FAIRLEAD_DAMAGES"); text != "" {
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for round := range count {
		text := damage.Text(random, sound)
		if len(text) == 0 {
			text = sound[:1] // an empty file is a new storage
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := openStorage(path)
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), path) {
				t.Errorf("round %d: %v", round, err)
			}
		} else if is := content(t, s, keys); !maps.Equal(is, want) {
			t.Errorf("round %d: lost: %v", round, is)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
			t.Errorf("round %d: the file was changed: %v", round, err)
		}
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

// TestDamageWhileOpen: a storage whose file is damaged while it is in use does not overwrite it.
func TestDamageWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acme.json")
	s, err := openStorage(path)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("shop1.test"), []byte("shop1.tesu"), 1)
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Store(t.Context(), "le/account", []byte("{}")); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("store: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, append(text, '\n')) {
		t.Errorf("the file was changed: %v", err)
	}
}

// TestDamagedDirectory flips each bit of a value in a directory. No damage is believed.
func TestDamagedDirectory(t *testing.T) {
	dir := t.TempDir()
	s, err := openStorage(dir)
	if err != nil {
		t.Fatal(err)
	}
	of := store{s, "le"}
	want := storedAccount{Email: "a@shop.test", PrivateKey: []byte("key"), KeyType: "4096"}
	if err := of.save(t.Context(), want, accountKind); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "le", accountKind)
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
		var is storedAccount
		found, err := of.load(t.Context(), &is, accountKind)
		if err == nil && (!found || !reflect.DeepEqual(is, want)) {
			t.Errorf("bit %d: %+v", i, is)
		}
	}
}

// TestEditedStorage: a file that the user or Traefik has changed is read: another layout, a certificate that was
// deleted, a file without checksums.
func TestEditedStorage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acme.json")
	s, err := openStorage(path)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	all["le"]["Certificates"] = all["le"]["Certificates"].([]any)[1:]
	for range 2 {
		if text, err = json.MarshalIndent(all, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openStorage(path); err != nil {
			t.Errorf("open: %v", err)
		}
		delete(all["le"], "Sums")
		all["le"]["Field of a newer Traefik"] = 1
	}
}
