package child

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// echo is a role that answers with its order, and ends at once.
func echo() int {
	var order string
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return 1
	}
	fmt.Print(Ready)
	if err := json.NewEncoder(os.Stdout).Encode(order); err != nil {
		return 1
	}
	return 0
}

// TestAnswerOfEndedWorker: a worker that has ended loses no output.
func TestAnswerOfEndedWorker(t *testing.T) {
	w, err := Order(t.Context(), "echo", "hello", Place{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Wait(); err != nil {
		t.Fatal(err)
	}
	var answer string
	if err := w.Finish(&answer); err != nil || answer != "hello" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}

// TestWorkersWithoutAnswers: neither a worker that is never ready nor one without an
// answer is waited for.
func TestWorkersWithoutAnswers(t *testing.T) {
	_, err := Order(t.Context(), "mute", "hello", Place{})
	if err == nil || !strings.Contains(err.Error(), "start mute") {
		t.Errorf("a worker that prints nothing: %v", err)
	}
	w, err := StartWorker(t.Context(), "mute", Place{})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Finish(new(string))
	if err == nil || !strings.Contains(err.Error(), "read the answer of fairlead-mute") {
		t.Errorf("a worker without an answer: %v", err)
	}
}
