package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"fairlead/internal/lab/suite"
)

// sessions makes all sessions of a run, one after the other, and returns them as one.
// Each has new topologies, and its own random order of building and of measuring.
func sessions(ctx context.Context, opt Options) (*session, error) {
	all := &session{Options: opt, existing: map[string]*built{}}
	for n := 1; n <= max(opt.Sessions, 1); n++ {
		s, err := one(ctx, opt, n)
		if err != nil {
			return nil, err
		}
		all.add(s)
	}
	return all, nil
}

// one makes one session, and removes everything that it has built.
func one(ctx context.Context, opt Options, number int) (s *session, err error) {
	s = &session{Options: opt, existing: map[string]*built{}}
	if opt.Sessions > 1 {
		s.number, s.Seed = number, seedOf(opt.Seed, number)
		s.Suite.Paths = shuffled(opt.Suite.Paths, s.Seed)
	}
	s.planned, _ = Runs(opt)
	s.planned /= max(opt.Sessions, 1)
	defer func() {
		if e := s.close(); e != nil {
			err = errors.Join(err, fmt.Errorf("%w: %w", ErrTakeDown, e))
		}
	}()
	if err := s.build(ctx); err != nil {
		return s, err
	}
	return s, s.rounds(ctx)
}

// seedOf returns the seed of a session; that of the first is the seed of the run.
func seedOf(seed uint64, number int) uint64 {
	if number == 1 {
		return seed
	}
	return rand.New(rand.NewPCG(seed, uint64(number))).Uint64()
}

// shuffled returns the paths in a random order. A path with many ports stays behind the
// others, because it may use the engine of one of them.
func shuffled(paths []string, seed uint64) []string {
	mixed := slices.Clone(paths)
	rand.New(rand.NewPCG(seed, 2)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	slices.SortStableFunc(mixed, func(a, b string) int {
		pathA, _ := suite.FindPath(a)
		pathB, _ := suite.FindPath(b)
		return max(pathA.Ports, 1) - max(pathB.Ports, 1)
	})
	return mixed
}

// add adds the results of another session.
func (s *session) add(other *session) {
	for _, run := range other.runs {
		run.Session = other.number
		s.runs = append(s.runs, run)
	}
	maps.Copy(s.existing, other.existing)
	for _, u := range other.unavailable {
		if !slices.Contains(s.unavailable, u) {
			s.unavailable = append(s.unavailable, u)
		}
	}
}
