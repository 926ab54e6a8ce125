package program

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestFindPrefersTheGivenDirectory(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "sh")
	if err := os.WriteFile(own, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Find("sh", dir); got != own || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := Find("sh", "", filepath.Join(dir, "empty")); got == own || err != nil {
		t.Errorf("without the directory: %s, %v", got, err)
	}
	if got, err := Find("cni/sh"); err == nil {
		t.Errorf("a shell is no CNI plugin: %s", got)
	}
}

func TestExpect(t *testing.T) {
	out := Expect("ready")
	for _, text := range []string{"not re", "ady yet", "later"} {
		if _, err := io.WriteString(out, text); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-out.Seen():
	default:
		t.Error("the expected text is not seen")
	}
	if got := out.Text(); got != "not ready yet" {
		t.Errorf("kept %q", got)
	}
}

// TestListens checks that all of the ports must be those of listeners, of either family.
func TestListens(t *testing.T) {
	var ports []int
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	if !Listens(os.Getpid(), ports...) {
		t.Errorf("the listeners on the ports %d are not found", ports)
	}
	const none = 1 << 16 // no port
	if Listens(os.Getpid(), ports[0], none) {
		t.Errorf("a listener on %d is found", none)
	}
}
