package serving

import "testing"

// TestPanicIsTheAnswer lets a request of the controlling process panic: it gets an answer, and so does the
// next request.
func TestPanicIsTheAnswer(t *testing.T) {
	s := &server{}
	if answer, _ := s.answer(request{ID: 1, Ask: askHandover}, nil, 0); answer.ID != 1 || answer.Fault == "" {
		t.Errorf("a request that panics is answered with %+v", answer)
	}
	if answer, _ := s.answer(request{ID: 2, Ask: askKeep}, nil, 0); answer.ID != 2 || answer.Fault != "" {
		t.Errorf("the next request is answered with %+v", answer)
	}
}
