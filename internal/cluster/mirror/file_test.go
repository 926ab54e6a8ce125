package mirror

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fairlead/internal/cluster/kv"
)

// writesFile is the environment variable with the file that the test's child writes.
const writesFile = "FAIRLEAD_TEST_MIRROR_FILE"

// TestMain writes a file until the process is killed, if it is the child of TestKilled.
func TestMain(m *testing.M) {
	path := os.Getenv(writesFile)
	if path == "" {
		os.Exit(m.Run())
	}
	f, table, err := openFile(path, "one")
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
}

// TestKilled kills a process that writes the file all the time. The file must always have all changes
// of one revision.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.db")
	last := int64(0)
	for round := range 8 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), writesFile+"="+path)
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 + round {
			if !lines.Scan() || lines.Text() != "write" {
				t.Errorf("the child prints %q", lines.Text())
			}
		}
		_ = child.Process.Kill() // Wait reports it
		_ = child.Wait()
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
