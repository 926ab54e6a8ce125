package compat

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/boltfile"
	"fairlead/internal/model"
	"fairlead/internal/store"

	"go.etcd.io/bbolt"
)

// databases are the files of a store.
var databases = []string{"fairlead.db", "boot.db"}

// content is what a store of testdata has.
type content struct {
	Desired model.Desired
	Record  store.Record
}

// storedFormat is the format of the databases that this version writes.
const storedFormat = 4

// TestStores opens the stores that releases have written. They have everything that was stored in them.
func TestStores(t *testing.T) {
	if *release != "" {
		addStore(t, filepath.Join("testdata/stores", *release))
	}
	stores, err := filepath.Glob("testdata/stores/*")
	if err != nil || len(stores) == 0 {
		t.Fatalf("there are no stores: %v", err)
	}
	for _, dir := range stores {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			at := store.Places{State: t.TempDir(), Run: t.TempDir()}
			unpack(t, filepath.Join(dir, databases[0]+".gz.base64"), filepath.Join(at.State, databases[0]))
			unpack(t, filepath.Join(dir, databases[1]+".gz.base64"), filepath.Join(at.Run, databases[1]))
			ofThisBoot(t, filepath.Join(at.Run, databases[1]))
			f, err := store.OpenFile(at)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			wants, err := readJSON(filepath.Join(dir, "content.json"))
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range missing(wants, stored(t, f), "") {
				t.Error(what)
			}
		})
	}
}

// stored returns the content of a store as a document.
func stored(t *testing.T, f *store.File) (v any) {
	t.Helper()
	desired, err := f.Desired()
	record, other := f.Load()
	text, third := json.Marshal(content{desired, record})
	if err := errors.Join(err, other, third, json.Unmarshal(text, &v)); err != nil {
		t.Fatal(err)
	}
	return v
}

// missing returns what a document has, and another one does not have with the same values.
func missing(wants, has any, at string) (all []string) {
	switch w := wants.(type) {
	case map[string]any:
		h, is := has.(map[string]any)
		for key, value := range w {
			if _, has := h[key]; !is || !has {
				all = append(all, at+"."+key+" is gone")
				continue
			}
			all = append(all, missing(value, h[key], at+"."+key)...)
		}
	case []any:
		h, _ := has.([]any)
		if len(h) != len(w) {
			return []string{fmt.Sprintf("%s has %d elements, want %d", at, len(h), len(w))}
		}
		for i := range w {
			all = append(all, missing(w[i], h[i], fmt.Sprintf("%s[%d]", at, i))...)
		}
	default:
		if !reflect.DeepEqual(wants, has) {
			all = append(all, fmt.Sprintf("%s is %v, want %v", at, has, wants))
		}
	}
	return all
}

// addStore writes a store with a value in each field, unless there is one.
func addStore(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	at := store.Places{State: t.TempDir(), Run: t.TempDir()}
	f, err := store.OpenFile(at)
	if err != nil {
		t.Fatal(err)
	}
	var all content
	fill(reflect.ValueOf(&all).Elem(), 0)
	if err := errors.Join(f.SaveDesired(all.Desired), f.Save(all.Record)); err != nil {
		t.Fatal(err)
	}
	writeJSON(t, filepath.Join(dir, "content.json"), stored(t, f))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	pack(t, filepath.Join(at.State, databases[0]), filepath.Join(dir, databases[0]+".gz.base64"))
	pack(t, filepath.Join(at.Run, databases[1]), filepath.Join(dir, databases[1]+".gz.base64"))
}

// deepest is how deep values inside values are filled. Only the gateway's objects are deeper: chains of middlewares.
const deepest = 12

// fill sets all fields of a value.
func fill(v reflect.Value, depth int) {
	if depth > deepest {
		return
	}
	switch to := v.Addr().Interface().(type) {
	case *netip.Addr:
		*to = netip.MustParseAddr("192.0.2.7")
	case *netip.Prefix:
		*to = netip.MustParsePrefix("192.0.2.0/24")
	case *netip.AddrPort:
		*to = netip.MustParseAddrPort("192.0.2.7:80")
	case *time.Time:
		*to = time.Unix(1800000000, 0).UTC()
	case *json.RawMessage:
		*to = json.RawMessage(`{"a":1}`)
	default:
		fillKind(v, depth)
	}
}

func fillKind(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Array:
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	}
}

// ofThisBoot makes a database one that was written since the machine has started. Otherwise nothing of it is valid.
func ofThisBoot(t *testing.T, path string) {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	db, err := boltfile.Open(path, boltfile.Options{Format: storedFormat})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(boltfile.Update(db, func(tx *bbolt.Tx) error {
		err := tx.Bucket([]byte(boltfile.Meta)).Put([]byte("boot"), []byte(strings.TrimSpace(string(boot))))
		return errors.Join(err, boltfile.Seal(tx, storedFormat))
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// pack writes a file compressed and as text, because the project tracks no binaries.
func pack(t *testing.T, from, to string) {
	t.Helper()
	var small bytes.Buffer
	packed, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err == nil {
		_, err = packed.Write(read(t, from))
	}
	if err := errors.Join(err, packed.Close()); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(small.Bytes())), 100) {
		lines = append(lines, string(line)+"\n")
	}
	write(t, to, strings.Join(lines, ""))
}

// unpack reverses pack.
func unpack(t *testing.T, from, to string) {
	t.Helper()
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(read(t, from))))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(packed)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
