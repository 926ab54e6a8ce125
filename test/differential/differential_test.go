package differential_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// fairlead returns the command of the gateway in place of Traefik.
func fairlead(t *testing.T) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fairlead")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../../cmd/fairlead")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return []string{program, "gateway", "traefik", "--"}
}

func TestTry(t *testing.T) {
	ours := fairlead(t)
	theirs := []string{os.Getenv("FAIRLEAD_TRAEFIK")}
	counts := map[string]int{}
	for _, b := range generate(1, 600) {
		began := time.Now()
		a := play(t, theirs, b)
		mid := time.Now()
		o := play(t, ours, b)
		fmt.Println(b.Name, mid.Sub(began), time.Since(mid))
		for _, d := range compare(b, a, o) {
			if explained(d) != nil {
				continue
			}
			counts[d.Where]++
			if counts[d.Where] < 6 {
				fmt.Println(d)
			}
		}
	}
	fmt.Println(counts)
}
