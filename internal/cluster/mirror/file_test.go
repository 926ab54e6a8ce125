package mirror

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/cluster/kv"
)

// writesFile is the environment variable with the file that the child of TestKilled writes.
const writesFile = "FAIRLEAD_TEST_MIRROR_FILE"

// Follow is the main function of the child of BenchmarkFollow.
var Follow func() int

// TestMain runs the tests, or what a child of them does.
func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{"writer": write, "follower": func() int { return Follow() }})
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
