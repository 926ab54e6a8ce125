package mirror

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/boltfile"
	"fairlead/internal/child"
	"fairlead/internal/cluster/etcd"
	"fairlead/internal/cluster/kv"

	"go.etcd.io/bbolt"
)

// writesFile is the environment variable with the file that the child of TestKilled writes.
const writesFile = "FAIRLEAD_TEST_MIRROR_FILE"

// FollowsEtcd is the environment variable with the URL of the etcd that the child of BenchmarkFollow
// follows, and FollowerFile that with its file.
const FollowsEtcd, FollowerFile = "FAIRLEAD_TEST_FOLLOW", "FAIRLEAD_TEST_FOLLOW_FILE"

// TestMain runs the tests, or what a child of them does.
func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{"writer": write, "follower": follow})
	os.Exit(m.Run())
}

// write writes a file until the process is killed.
func write() int {
	f, table, err := openFile(os.Getenv(writesFile), "one")
	for ; err == nil; err = f.write(1, table) {
		if table == nil {
			table = kv.NewTable(0, nil)
		}
		var changes []kv.Entry
		next := table.Revision() + 1
		for i := range 300 {
			changes = append(changes, kv.Entry{Key: fmt.Sprint(i), Value: fmt.Append(nil, next), Revision: next})
		}
		table = table.With(next, changes)
		fmt.Println("write")
	}
	fmt.Println(err)
	return 1
}

// follow is the process of BenchmarkFollow. It prints the revision of each update.
func follow() int {
	store, err := etcd.Open(etcd.Config{Access: api.EtcdAccess{Endpoints: []string{os.Getenv(FollowsEtcd)}},
		Cluster: "test"})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	m, err := Open(Config{Source: store, Cluster: "one", Path: os.Getenv(FollowerFile)})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for u := range m.Updates(context.Background()) {
		fmt.Println(u.Snapshot.Revision())
	}
	return 0
}

// TestKilled kills a process that writes the file all the time. The file must always have all changes
// of one revision.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.db")
	last := int64(0)
	for round := range 8 {
		writer := child.Self("writer")
		writer.Env = append(writer.Env, writesFile+"="+path)
		out, err := writer.StdoutPipe()
		if err == nil {
			err = writer.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 + round {
			if !lines.Scan() || lines.Text() != "write" {
				t.Errorf("the writer prints %q", lines.Text())
			}
		}
		_ = writer.Process.Kill() // Wait reports it
		_ = writer.Wait()
		f, table, err := openFile(path, "one")
		if err != nil {
			t.Fatal(err)
		}
		if table == nil || table.Revision() < last+2 || table.Len() != 300 {
			t.Fatalf("the file has the snapshot %v, after revision %d", table, last)
		}
		last = table.Revision()
		for e := range table.Under("") {
			if e.Revision != last || string(e.Value) != fmt.Sprint(last) {
				t.Fatalf("the snapshot of revision %d has %v", last, e)
			}
		}
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOtherFormatsAreRefused opens files of other versions. The error says which file to delete.
func TestOtherFormatsAreRefused(t *testing.T) {
	for format, says := range map[int]string{1: "format 1 is older than this program's 2",
		3: "format 3 is newer than this program's 2"} {
		path := filepath.Join(t.TempDir(), "cluster.db")
		f, _, err := openFile(path, "one")
		if err != nil {
			t.Fatal(err)
		}
		err = f.db.Update(func(tx *bbolt.Tx) error { return boltfile.Seal(tx, format) })
		if err := errors.Join(err, f.close()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openFile(path, "one"); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "delete the file "+path) {
			t.Errorf("format %d: %v", format, err)
		}
	}
}

// TestDamaged damages the file in many ways. Either it has what was stored, or the error says what to do, and the
// file can be replaced while the process runs.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.db")
	f, table, err := openFile(path, "one")
	if err != nil || table != nil {
		t.Fatalf("a new file has %v, %v", table, err)
	}
	var entries []kv.Entry
	for n := range 500 {
		entries = append(entries, kv.Entry{Key: fmt.Sprint("key", n), Value: make([]byte, 100), Revision: int64(n + 1)})
	}
	if err := errors.Join(f.write(1, kv.NewTable(500, entries)), f.close()); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	failed, rounds := 0, 150
	if text := os.Getenv("FAIRLEAD_DAMAGES"); text != "" {
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for round := range rounds {
		damaged := bytes.Clone(sound)
		switch at := random.IntN(len(damaged)); round % 5 {
		case 0:
			damaged = damaged[:at]
		case 1:
			clear(damaged[at:min(at+4096, len(damaged))])
		case 2:
			for range 40 {
				damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
			}
		case 3:
			damaged[at] ^= 1 << random.IntN(8)
		case 4:
			a, b := at/4096*4096, random.IntN(len(damaged)/4096)*4096
			copy(damaged[a:a+4096], sound[b:])
			copy(damaged[b:b+4096], sound[a:a+4096])
		}
		path := filepath.Join(t.TempDir(), "cluster.db")
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		f, table, err := openFile(path, "one")
		if err == nil {
			if table == nil || table.Revision() != 500 || table.Len() != 500 {
				t.Errorf("round %d: lost: %v", round, table)
			}
			for n, e := range entries {
				if is, _ := table.Get(e.Key); is.Revision != e.Revision || !bytes.Equal(is.Value, e.Value) {
					t.Errorf("round %d: entry %d is %+v", round, n, is)
				}
			}
			if err := f.close(); err != nil {
				t.Error(err)
			}
			continue
		}
		failed++
		if !strings.Contains(err.Error(), "delete the file "+path) {
			t.Errorf("the error does not say what to do: %v", err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		f, table, err = openFile(path, "one")
		if err != nil || table != nil {
			t.Fatalf("after the file was deleted: %v, %v", table, err)
		}
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}
	if failed < 20 {
		t.Errorf("only %d damages were noticed", failed)
	}
}
