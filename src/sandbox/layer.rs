//! The files baked into every image: toolbox, workspace, home, the agent's line in /etc/passwd.

use std::io::Read;

use bollard::errors::Error as Fault;
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, DownloadFromContainerOptionsBuilder,
};
use bytes::Bytes;
use futures::StreamExt;

use super::Error;
use super::build::packing;
use super::call::{self, SHORT};
use super::docker::Docker;
use super::toolbox::TOOLBOX;

/// The agent's user and group, as `profile::USER` says it.
const ID: u64 = 1000;
/// A larger file of users is left as it is.
const PASSWD_LIMIT: usize = 1 << 20;

/// A tar of what is put over the root of a created container.
pub(super) async fn of(
    docker: &Docker,
    container: &str,
    setup_files: &[(String, Bytes)],
) -> Result<Bytes, Error> {
    let passwd = read(docker, container, "/etc/passwd").await?;
    let group = read(docker, container, "/etc/group").await?;
    let mut tar = Tar(tar::Builder::new(Vec::new()));
    tar.folder(".wharf/", 0)?;
    tar.file(".wharf/toolbox", TOOLBOX, 0o755, 0)?;
    if let Some(text) =
        passwd.and_then(|text| with_user(text, "x:1000:1000:agent:/home/agent:/bin/sh"))
    {
        tar.file("etc/passwd", text.as_bytes(), 0o644, 0)?;
    }
    if let Some(text) = group.and_then(|text| with_user(text, "x:1000:")) {
        tar.file("etc/group", text.as_bytes(), 0o644, 0)?;
    }
    for folder in [
        "workspace/",
        "home/agent/",
        "home/agent/.tmp/",
        "home/agent/.local/",
        "home/agent/.local/bin/",
    ] {
        tar.folder(folder, ID)?;
    }
    for (path, bytes) in setup_files {
        tar.setup_file(path, bytes)?;
    }
    Ok(Bytes::from(tar.0.into_inner().map_err(packing)?))
}

/// Whether a path is there; asked of the engine, since the image may hold nothing that could tell.
pub(super) async fn exists(docker: &Docker, container: &str, path: &str) -> Result<bool, Error> {
    let options = ContainerArchiveInfoOptionsBuilder::new().path(path).build();
    let call = docker
        .api
        .get_container_archive_info(container, Some(options));
    let found = call::found("looking for a file in an image", SHORT, call).await?;
    Ok(found.is_some())
}

/// A regular file's text; None where there is no such file, or one we had better not touch.
async fn read(docker: &Docker, container: &str, path: &str) -> Result<Option<String>, Error> {
    let options = DownloadFromContainerOptionsBuilder::new()
        .path(path)
        .build();
    let mut stream = std::pin::pin!(docker.api.download_from_container(container, Some(options)));
    let mut packed = Vec::new();
    loop {
        match tokio::time::timeout(SHORT, stream.next()).await {
            Ok(Some(Ok(chunk))) => packed.extend_from_slice(&chunk),
            Ok(Some(Err(Fault::DockerResponseServerError {
                status_code: 404, ..
            }))) => return Ok(None),
            Ok(Some(Err(fault))) => return Err(call::engine("reading a file of an image", &fault)),
            Ok(None) => return Ok(only_file(&packed)),
            Err(_) => {
                return Err(Error::Engine {
                    operation: "reading a file of an image",
                    reason: "the engine stopped sending".to_owned(),
                });
            }
        }
        if packed.len() > PASSWD_LIMIT {
            return Ok(None);
        }
    }
}

/// The text of a tar's first entry, if that is a plain file of UTF-8.
fn only_file(packed: &[u8]) -> Option<String> {
    let mut archive = tar::Archive::new(packed);
    let entry = archive.entries().ok()?.next()?.ok()?;
    if !entry.header().entry_type().is_file() {
        return None;
    }
    let mut text = String::new();
    entry
        .take(PASSWD_LIMIT as u64)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// The file with a line for id 1000, or None when it has one already.
fn with_user(mut text: String, rest: &str) -> Option<String> {
    let field = |line: &str, n: usize| line.split(':').nth(n).map(str::to_owned);
    if text
        .lines()
        .any(|line| field(line, 2).as_deref() == Some("1000"))
    {
        return None;
    }
    let taken = text
        .lines()
        .any(|line| field(line, 0).as_deref() == Some("agent"));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(if taken { "wharf-agent:" } else { "agent:" });
    text.push_str(rest);
    text.push('\n');
    Some(text)
}

struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    fn folder(&mut self, path: &str, owner: u64) -> Result<(), Error> {
        let mut header = header(owner, 0o755);
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        self.0
            .append_data(&mut header, path, &[][..])
            .map_err(packing)
    }

    fn file(&mut self, path: &str, bytes: &[u8], mode: u32, owner: u64) -> Result<(), Error> {
        let mut header = header(owner, mode);
        header.set_size(bytes.len() as u64);
        self.0
            .append_data(&mut header, path, bytes)
            .map_err(packing)
    }

    /// A file for the setup commands, with its folders, at its place in the workspace.
    fn setup_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let parts: Vec<&str> = path.split('/').collect();
        if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(Error::Engine {
                operation: "packing setup files",
                reason: format!("{path:?} is no path inside a workspace"),
            });
        }
        for depth in 1..parts.len() {
            let folder = parts.get(..depth).unwrap_or_default().join("/");
            self.folder(&format!("workspace/{folder}/"), ID)?;
        }
        self.file(&format!("workspace/{path}"), bytes, 0o644, ID)
    }
}

fn header(owner: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(owner);
    header.set_gid(owner);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_added_once_and_under_a_free_name() {
        let rest = "x:1000:1000:agent:/home/agent:/bin/sh";
        let with = with_user("root:x:0:0::/root:/bin/sh".into(), rest).unwrap();
        assert!(with.ends_with("/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n"));
        assert_eq!(with_user(with, rest), None);
        let taken = with_user("agent:x:5:5::/:/bin/sh\n".into(), rest).unwrap();
        assert!(taken.contains("\nwharf-agent:x:1000:"));
    }

    #[test]
    fn setup_files_stay_in_the_workspace() {
        let mut tar = Tar(tar::Builder::new(Vec::new()));
        assert!(tar.setup_file("a/b/requirements.txt", b"x").is_ok());
        for path in ["../x", "/etc/passwd", "a//b", "a/./b", ""] {
            assert!(tar.setup_file(path, b"x").is_err(), "{path}");
        }
    }

    #[test]
    fn a_link_in_place_of_a_file_is_not_read() {
        let mut tar = tar::Builder::new(Vec::new());
        let mut link = header(0, 0o777);
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        tar.append_link(&mut link, "passwd", "/etc/shadow").unwrap();
        assert_eq!(only_file(&tar.into_inner().unwrap()), None);
        let mut tar = Tar(tar::Builder::new(Vec::new()));
        tar.file("passwd", b"root:", 0o644, 0).unwrap();
        assert_eq!(
            only_file(&tar.0.into_inner().unwrap()).as_deref(),
            Some("root:")
        );
    }
}
