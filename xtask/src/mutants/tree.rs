//! A private copy of the workspace, in which a mutant is applied and built without touching anybody's files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};

/// The source files of a workspace by their relative paths, with their contents.
#[derive(Debug)]
pub struct Sources(BTreeMap<PathBuf, Vec<u8>>);

impl Sources {
    /// Reads every file of the workspace that git knows or would not ignore, as it lies there.
    ///
    /// # Errors
    /// When git cannot list the files, or one cannot be read.
    pub fn read(workspace: &Path) -> anyhow::Result<Self> {
        let output = Command::new("git")
            .arg("-C")
            .arg(workspace)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("git cannot be started")?;
        if !output.status.success() {
            bail!(
                "git cannot list the files of {}: {}",
                workspace.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let mut sources = BTreeMap::new();
        for name in output.stdout.split(|&byte| byte == 0) {
            let name = PathBuf::from(str::from_utf8(name).context("a file's name is not UTF-8")?);
            match fs::read(workspace.join(&name)) {
                Ok(content) => {
                    sources.insert(name, content);
                }
                // Git still knows a file that was deleted; the empty name after the last separator is a directory.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                    ) => {}
                Err(error) => return Err(error).context(name.display().to_string()),
            }
        }
        Ok(Self(sources))
    }

    /// A number that other sources are very unlikely to have.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

/// A place to build mutants in, held by one worker at a time among all processes.
#[derive(Debug)]
pub struct Workshop {
    directory: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl Workshop {
    /// Takes one of `count` workshops under `directory` that nobody holds, waiting for one if need be.
    ///
    /// # Errors
    /// When its directory cannot be made.
    pub fn take(directory: &Path, count: usize) -> io::Result<Self> {
        loop {
            for number in 0..count {
                let directory = directory.join(format!("workshop-{number}"));
                fs::create_dir_all(&directory)?;
                let lock = File::create(directory.join("lock"))?;
                match lock.try_lock() {
                    Ok(()) => {
                        return Ok(Self { directory, _lock: lock });
                    }
                    Err(fs::TryLockError::WouldBlock) => {}
                    Err(fs::TryLockError::Error(error)) => return Err(error),
                }
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The copy of the workspace.
    pub fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    /// Where cargo puts what it makes of the kernel.
    pub fn kernel_target(&self) -> PathBuf {
        self.directory.join("target-kernel")
    }

    /// Where cargo puts what it makes of the host's crates. Not one place for all workshops: cargo names what it makes by a
    /// crate's place in its workspace, which is the same in each, so one workshop would run what another has built.
    pub fn host_target(&self) -> PathBuf {
        self.directory.join("target-host")
    }

    /// Where the finished clean image is kept for comparison.
    pub fn clean_image(&self) -> PathBuf {
        self.directory.join("clean-kernel")
    }

    /// Makes the copy equal to the sources. Only what differs is written, so that cargo, which looks at the times of
    /// files, builds no more than it must.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn restore(&self, sources: &Sources) -> io::Result<()> {
        let tree = self.tree();
        fs::create_dir_all(&tree)?;
        for stale in files_below(&tree)? {
            if !sources.0.contains_key(&stale) {
                fs::remove_file(tree.join(stale))?;
            }
        }
        for (name, content) in &sources.0 {
            let path = tree.join(name);
            if fs::read(&path).ok().as_ref() != Some(content) {
                fs::create_dir_all(path.parent().expect("a file lies in a directory"))?;
                fs::write(&path, content)?;
            }
        }
        Ok(())
    }

    /// Applies a patch to the copy. On failure nothing has changed, and the error is what git says.
    ///
    /// # Errors
    /// When git cannot be started.
    pub fn apply(&self, patch: &Path) -> io::Result<Result<(), String>> {
        git_apply(&self.tree(), patch, &[])
    }
}

/// Whether a patch applies to a tree, without doing it; else what git says.
///
/// # Errors
/// When git cannot be started.
pub fn applies(tree: &Path, patch: &Path) -> io::Result<Result<(), String>> {
    git_apply(tree, patch, &["--check"])
}

fn git_apply(tree: &Path, patch: &Path, options: &[&str]) -> io::Result<Result<(), String>> {
    let tree = tree.canonicalize()?;
    let output = Command::new("git")
        .current_dir(&tree)
        .args(["apply", "--whitespace=nowarn"])
        .args(options)
        .arg(patch.canonicalize()?)
        // The copy lies within the repository: without this, git would take the paths from the repository's root.
        .env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(&tree))
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .output()?;
    if output.status.success() {
        Ok(Ok(()))
    } else {
        Ok(Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// The paths of all files below a directory, relative to it.
fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(directory.join(&folder))? {
            let entry = entry?;
            let name = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(name);
            } else {
                files.push(name);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "Mutant: x\n\ndiff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n\
                         @@ -1 +1 @@\n-one\n+two\n";

    fn git(directory: &Path, arguments: &[&str]) {
        let status = Command::new("git").current_dir(directory).args(arguments).status().unwrap();
        assert!(status.success());
    }

    /// A workspace under git with a source, a file git ignores and one it does not know yet.
    fn workspace() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        git(root, &["init", "--quiet"]);
        fs::create_dir(root.join("src")).unwrap();
        fs::write(root.join("src/a.rs"), "one\n").unwrap();
        fs::write(root.join("deleted"), "").unwrap();
        fs::write(root.join(".gitignore"), "/target\n").unwrap();
        git(root, &["add", "."]);
        fs::remove_file(root.join("deleted")).unwrap();
        fs::create_dir(root.join("target")).unwrap();
        fs::write(root.join("target/x"), "").unwrap();
        fs::write(root.join("new"), "").unwrap();
        directory
    }

    fn workshop(workspace: &Path) -> Workshop {
        Workshop::take(&workspace.join("target/mutants"), 1).unwrap()
    }

    fn names(sources: &Sources) -> Vec<&str> {
        sources.0.keys().map(|name| name.to_str().unwrap()).collect()
    }

    #[test]
    fn the_sources_are_what_git_knows_or_would_not_ignore() {
        let workspace = workspace();
        let sources = Sources::read(workspace.path()).unwrap();
        assert_eq!(names(&sources), [".gitignore", "new", "src/a.rs"]);
    }

    #[test]
    fn the_digest_changes_with_a_content_and_with_a_name() {
        let workspace = workspace();
        let read = || Sources::read(workspace.path()).unwrap().digest();
        let first = read();
        assert_eq!(first, read());
        fs::write(workspace.path().join("src/a.rs"), "two\n").unwrap();
        let second = read();
        assert_ne!(first, second);
        fs::rename(workspace.path().join("src/a.rs"), workspace.path().join("src/b.rs")).unwrap();
        assert_ne!(second, read());
    }

    #[test]
    fn a_patch_changes_the_copy_and_not_the_workspace() {
        let workspace = workspace();
        let patch = workspace.path().join("x.patch");
        fs::write(&patch, PATCH).unwrap();
        let workshop = workshop(workspace.path());
        workshop.restore(&Sources::read(workspace.path()).unwrap()).unwrap();
        assert_eq!(workshop.apply(&patch).unwrap(), Ok(()));
        let content = |root: &Path| fs::read_to_string(root.join("src/a.rs")).unwrap();
        assert_eq!(content(&workshop.tree()), "two\n");
        assert_eq!(content(workspace.path()), "one\n");
        // Once more it does not apply, and says so.
        let message = workshop.apply(&patch).unwrap().unwrap_err();
        assert!(message.contains("src/a.rs"), "{message}");
    }

    #[test]
    fn restoring_undoes_a_patch_and_touches_nothing_else() {
        let workspace = workspace();
        let patch = workspace.path().join("x.patch");
        fs::write(&patch, PATCH).unwrap();
        let sources = Sources::read(workspace.path()).unwrap();
        let workshop = workshop(workspace.path());
        workshop.restore(&sources).unwrap();
        let time = |name| {
            let metadata = fs::metadata(workshop.tree().join(name)).unwrap();
            metadata.modified().unwrap()
        };
        let before = (time("new"), time("src/a.rs"));
        workshop.apply(&patch).unwrap().unwrap();
        fs::write(workshop.tree().join("left-over"), "").unwrap();
        workshop.restore(&sources).unwrap();
        assert_eq!(time("new"), before.0);
        assert!(time("src/a.rs") > before.1, "cargo would not see the change");
        assert_eq!(fs::read_to_string(workshop.tree().join("src/a.rs")).unwrap(), "one\n");
        assert!(!workshop.tree().join("left-over").exists());
    }

    #[test]
    fn whether_a_patch_applies_is_found_out_without_applying_it() {
        let workspace = workspace();
        let patch = workspace.path().join("x.patch");
        fs::write(&patch, PATCH).unwrap();
        assert_eq!(applies(workspace.path(), &patch).unwrap(), Ok(()));
        assert_eq!(applies(workspace.path(), &patch).unwrap(), Ok(()));
        fs::write(&patch, PATCH.replace("-one", "-three")).unwrap();
        assert!(applies(workspace.path(), &patch).unwrap().is_err());
    }

    #[test]
    fn a_workshop_is_held_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let first = Workshop::take(directory.path(), 2).unwrap();
        let second = Workshop::take(directory.path(), 2).unwrap();
        assert_ne!(first.tree(), second.tree());
        let tree = first.tree();
        drop(first);
        let third = Workshop::take(directory.path(), 2).unwrap();
        assert_eq!(third.tree(), tree);
    }

    #[test]
    fn a_directory_that_is_no_repository_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = Sources::read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("git cannot list the files"), "{error}");
    }
}
