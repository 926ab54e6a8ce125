package program

import (
	"io"
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
