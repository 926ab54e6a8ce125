package plan

// Trial is an object that carries only its name.
type Trial struct{ Name string }

// Key implements Object.
func (t Trial) Key() string { return "trial " + t.Name }

// Add implements Object.
func (t Trial) Add() []string { return []string{"# trial: add"} }

// Del implements Object.
func (t Trial) Del() []string { return []string{"# trial: remove"} }
